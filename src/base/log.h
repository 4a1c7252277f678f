// Where the library says what it does. It never prints: whoever embeds it gives a sink, or none.
#pragma once

#include <cstdint>
#include <string_view>

namespace changeover::base {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
std::string_view log_level_name(LogLevel level);  // "debug", "info", "warning", "error"

// Called from any thread; must not block for long and must not call back into the library.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view message) = 0;
};

// The sink of who gave none.
class NullLogSink final : public LogSink {
 public:
  void write(LogLevel /*level*/, std::string_view /*message*/) override {}
};

}  // namespace changeover::base
