// What the demo shows: on a terminal a table that is redrawn in place below lines that stay,
// elsewhere only the lines.
#pragma once

#include <chrono>
#include <string>

#include "cli/demo_fleet.h"

namespace changeover::cli {

class Screen {
 public:
  explicit Screen(bool quiet);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void say(const std::string& line);  // A line that stays.
  // The table and one line of progress; at most ten times a second, unless `now`.
  void draw(const Fleet& fleet, const std::string& progress, bool now = false);
  void wipe();
  void keep() { lines_ = 0; }  // What is drawn stays.

 private:
  const bool quiet_;
  const bool live_;
  int lines_ = 0;  // Drawn below the lines that stay.
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace changeover::cli
