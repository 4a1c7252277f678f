// Status: the one way this library reports failure. Result<T>: a T or a Status.
//
// No exception crosses the API and nothing aborts on input. Each code says what the caller does
// next; the message names the rank, tensor and rule, both numbers, and what to do.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace changeover {

enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument,  // Bad input or a caller's mistake: mend it; a retry will fail again.
  kCorrupt,          // Bytes broke a rule of their format: drop them, ask for the version again.
  kRefused,          // Policy said no (token, stale version, fence, busy): change what is asked.
  kUnavailable,      // A peer or a road is gone: reconnect, then begin a new update.
  kDeadline,         // A wait ended without its event: look at who is named, then retry.
  kAborted,          // The update failed and was undone or fenced: begin a new update.
  kInDoubt,          // Prepared, the decision is unknown: wait for the coordinator, never guess.
  kExhausted,        // No room (memory, disk, descriptors): free some, then retry.
  kTryLater,         // Back-pressure, not a failure: call again when told.
};

// The code's stable name as users and JSON see it, e.g. "deadline".
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string_view message) : code_(code), message_(message) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same failure with "context: " before its message. No effect on an ok status.
  Status with_context(std::string_view context) const;

  // "deadline: waited 10 s for ..."; "ok" when ok.
  std::string to_string() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) {
      std::abort();  // Our own bug: a failed Result must say why.
    }
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T take() && { return std::move(*value_); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace changeover

#define CHANGEOVER_CONCAT_(a, b) a##b
#define CHANGEOVER_CONCAT(a, b) CHANGEOVER_CONCAT_(a, b)

// Returns early when `expr` (a Status) is not ok.
#define CHANGEOVER_TRY(expr)                                              \
  do {                                                                    \
    if (::changeover::Status changeover_s = (expr); !changeover_s.ok()) { \
      return changeover_s;                                                \
    }                                                                     \
  } while (0)

// Binds the value of `expr` (a Result<T>) to `lhs`, or returns its Status.
#define CHANGEOVER_TRY_ASSIGN(lhs, expr) \
  CHANGEOVER_TRY_ASSIGN_(CHANGEOVER_CONCAT(changeover_r_, __COUNTER__), lhs, expr)
#define CHANGEOVER_TRY_ASSIGN_(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.ok()) {                             \
    return tmp.status();                       \
  }                                            \
  lhs = std::move(tmp).take()
