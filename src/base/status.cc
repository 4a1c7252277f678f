#include <changeover/status.h>

namespace changeover {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kRefused:
      return "refused";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadline:
      return "deadline";
    case Code::kAborted:
      return "aborted";
    case Code::kInDoubt:
      return "in doubt";
    case Code::kExhausted:
      return "no room";
    case Code::kTryLater:
      return "try later";
  }
  return "unknown";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) {
    return *this;
  }
  std::string text(context);
  text += ": ";
  text += message_;
  return {code_, text};
}

std::string Status::to_string() const {
  std::string text(code_name(code_));
  if (!message_.empty()) {
    text += ": ";
    text += message_;
  }
  return text;
}

}  // namespace changeover
