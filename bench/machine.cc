#include <fstream>
#include <string>
#include <thread>

#include <sys/utsname.h>
#include <unistd.h>

#include "bench/bench.h"

namespace changeover::bench {

Machine machine() {
  Machine out;
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; out.processor.empty() && std::getline(cpu, line);) {
    if (line.starts_with("model name")) {
      out.processor = line.substr(std::min(line.size(), line.find(": ") + 2));
    }
  }
  out.cores = static_cast<int>(std::thread::hardware_concurrency());
  out.memory_bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                     static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  utsname name{};
  if (::uname(&name) == 0) {
    out.kernel = std::string(name.sysname) + " " + name.release + " " + name.machine;
  }
  return out;
}

}  // namespace changeover::bench
