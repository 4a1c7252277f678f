// Printing that never throws and never ends the command: a pager that leaves, a full disk or a
// closed stream is seen once, at the end, by finish().
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace changeover::cli {

template <typename... T>
void emit(std::FILE* file, fmt::format_string<T...> format, T&&... arguments) {
  const std::string text = fmt::format(format, std::forward<T>(arguments)...);
  std::fwrite(text.data(), 1, text.size(), file);  // What failed stays in ferror().
}

template <typename... T>
void emit(fmt::format_string<T...> format, T&&... arguments) {
  emit(stdout, format, std::forward<T>(arguments)...);
}

// Opens /dev/null where standard input, output or error came closed: otherwise the next file or
// shared memory that is opened takes that number, and is printed into. Call it first.
void open_standard_streams();

// Flushes standard output. The command's own exit code where all of it was written, or where its
// reader left (a pager); else kExitFailed, said on standard error.
int finish(int exit_code);

}  // namespace changeover::cli
