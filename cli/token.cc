#include "cli/token.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

namespace changeover::cli {
namespace {

constexpr size_t kTokenBytesMax = 4096;

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
    text.pop_back();
  }
  return text;
}

}  // namespace

Result<std::string> read_token(const std::string& token_file) {
  if (token_file.empty()) {
    const char* token = std::getenv("CHANGEOVER_TOKEN");
    return trimmed(token == nullptr ? "" : token);
  }
  const int fd = ::open(token_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return Status(Code::kInvalidArgument, fmt::format("{}: the token file cannot be read ({})",
                                                      token_file, std::strerror(errno)));
  }
  struct stat info = {};
  std::array<char, kTokenBytesMax + 1> buffer;
  const bool known = fstat(fd, &info) == 0;
  const ssize_t size = known ? ::read(fd, buffer.data(), buffer.size()) : -1;
  ::close(fd);
  if (known && (info.st_mode & 077) != 0) {
    return Status(Code::kRefused,
                  fmt::format("{}: others can read the token file (mode {:o}); chmod 600 it",
                              token_file, info.st_mode & 0777));
  }
  const std::string token =
      size < 0 ? std::string() : trimmed({buffer.data(), static_cast<size_t>(size)});
  if (token.empty() || token.size() > kTokenBytesMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: holds no token of 1 to {} bytes", token_file, kTokenBytesMax));
  }
  return token;
}

}  // namespace changeover::cli
