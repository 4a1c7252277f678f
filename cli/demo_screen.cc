#include "cli/demo_screen.h"

#include <algorithm>
#include <cstdio>

#include <fmt/core.h>

#include "cli/emit.h"
#include "cli/terminal.h"

namespace changeover::cli {

Screen::Screen(bool quiet)
    : quiet_(quiet),
      live_(!quiet && is_terminal(stdout)),
      start_(std::chrono::steady_clock::now()) {}

Screen::~Screen() {
  wipe();
}

void Screen::wipe() {
  if (lines_ > 0) {
    emit("\x1b[{}A\x1b[J", lines_);
    std::fflush(stdout);
    lines_ = 0;
  }
}

void Screen::say(const std::string& line) {
  if (quiet_) {
    return;
  }
  wipe();
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - start_;
  emit("{} {}\n", coloured(fmt::format("{:5.1f} s", age.count()), Colour::kDim, stdout), line);
  std::fflush(stdout);
}

void Screen::draw(const Fleet& fleet, const std::string& progress, bool now) {
  const auto time = std::chrono::steady_clock::now();
  if (!live_ || (!now && time - last_ < std::chrono::milliseconds(100))) {
    return;
  }
  last_ = time;
  const std::string text = "\n" + fleet_text(fleet.views()) + progress + "\n";
  wipe();
  emit("{}", text);
  std::fflush(stdout);
  lines_ = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace changeover::cli
