#include "cli/input_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>

namespace changeover::cli {

Result<std::string> read_input_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  std::string text;
  char chunk[65536];
  while (const size_t bytes = std::fread(chunk, 1, sizeof chunk, file.get())) {
    if (text.size() + bytes > kInputBytesMax) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: longer than {} bytes, the most that is read here", path,
                                kInputBytesMax));
    }
    text.append(chunk, bytes);
  }
  if (std::ferror(file.get()) != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  return text;
}

}  // namespace changeover::cli
