// Functions and sources that callers hand in may throw; nothing of ours does, and no thread of ours
// ends by it. What they threw becomes a Status that says whose function it was (case B02).
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <changeover/status.h>

namespace changeover::runtime {

// `function` returns Status or a Result<T>.
template <typename Function>
auto call(std::string_view what, Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& thrown) {
    return Status(Code::kAborted, std::string(what) + " failed: " + thrown.what());
  } catch (...) {
    return Status(Code::kAborted, std::string(what) + " failed and does not say why");
  }
}

}  // namespace changeover::runtime
