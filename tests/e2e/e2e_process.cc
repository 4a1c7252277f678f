// A rank or a publisher as a process of its own, to be killed and stopped. Answers one line per
// line on its standard input; says "holding" when it stands still in mid-stream.
//
//   e2e_process rank FOLDER ENDPOINT ENGINE RANK TP MODE HOLD_AT
//   e2e_process publisher FOLDER ENDPOINT VERSION RANKS HOLD_AT
//   e2e_process flood SHM_ENDPOINT: connects and says nothing, as fast and as often as it can
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/listener.h"
#include "os/fd.h"
#include "tests/e2e/kit.h"

namespace changeover::e2e {
namespace {

// More than a listener's queue holds, so that what is taken from it is alive.
constexpr size_t kFloodOpen = 6000;

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) {
    std::exit(1);
  }
}

// Once `bytes` is reached: says so, and never comes back.
void hold(uint64_t bytes, uint64_t at) {
  if (bytes >= at) {
    say("holding");
    for (;;) {
      pause();
    }
  }
}

int run_rank(char** argv) {
  const Model model{std::filesystem::path(argv[2])};
  RankOptions options;
  options.engine = argv[4];
  options.rank = std::atoi(argv[5]);
  options.tp = std::atoi(argv[6]);
  options.mode = *parse_mode(argv[7]);
  options.subscriber.deadlines = short_deadlines();
  const uint64_t hold_at = std::strtoull(argv[8], nullptr, 10);
  options.subscriber.on_progress = [hold_at](uint64_t bytes) { hold(bytes, hold_at); };
  Rank rank(model, *Endpoint::parse(argv[3]), options);
  say("ready");
  for (std::string line; std::getline(std::cin, line);) {
    const RankStatus status = rank->status();
    say((status.version ? std::to_string(status.version->version) : "none") + " " + status.phase +
        (status.fenced ? " fenced" : "") + (status.gate_open ? " open" : ""));
  }
  return 0;
}

int run_publisher(char** argv) {
  const Model model{std::filesystem::path(argv[2])};
  PublisherOptions options;
  options.endpoint = *Endpoint::parse(argv[3]);
  options.deadlines = short_deadlines();
  options.ring_slot_bytes = 64 << 10;
  options.ring_slots = 4;
  auto publisher = open_publisher(options);
  say(publisher->endpoint().to_string());
  const uint64_t hold_at = std::strtoull(argv[6], nullptr, 10);
  auto how = publish_options(std::atoi(argv[4]), static_cast<uint32_t>(std::atoi(argv[5])), 1);
  how.on_progress = [hold_at](uint64_t sent, uint64_t) { hold(sent, hold_at); };
  const auto report = publisher->publish(*model.source(how.version.version), how);
  say(report.ok() ? report->status.to_string() : report.status().to_string());
  std::string line;
  std::getline(std::cin, line);
  return 0;
}

int run_flood(char** argv) {
  const std::string name = control::shm_socket_name("default", Endpoint::parse(argv[2])->name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof address.sun_path);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const size_t open_max = std::min<size_t>(kFloodOpen, limit.rlim_cur - 64);
  std::deque<os::Fd> open;
  for (uint64_t made = 0;;) {
    os::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      continue;  // The queue is full, as it should be.
    }
    open.push_back(std::move(fd));
    if (open.size() > open_max) {
      open.pop_front();
    }
    if (++made == open_max) {
      say("flooding");
    }
  }
}

}  // namespace
}  // namespace changeover::e2e

int main(int, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string what = argv[1];
  return what == "rank"    ? changeover::e2e::run_rank(argv)
         : what == "flood" ? changeover::e2e::run_flood(argv)
                           : changeover::e2e::run_publisher(argv);
}
