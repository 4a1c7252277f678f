// Text for people: tables, sizes, colour and progress. Colour and progress only on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace changeover::cli {

bool is_terminal(std::FILE* file);

// "269 MB", "1.2 GB", "17 B": powers of 1000, three digits.
std::string human_bytes(uint64_t bytes);
// "12 ms", "3.4 s".
std::string human_seconds(double seconds);
// "[576, 1536]"
std::string shape_text(const std::vector<int64_t>& shape);
// Text that came from outside, fit for a terminal: control characters as \xNN.
std::string printable(std::string_view text);

enum class Colour { kNone, kGreen, kRed, kYellow, kDim };
// The text in colour where `file` is a terminal (and NO_COLOR is not set), else as it is.
std::string coloured(std::string_view text, Colour colour, std::FILE* file);

// Columns as wide as their widest cell, two blanks apart. Cells of `right` columns stand right.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<size_t> right = {});
  void add(std::vector<std::string> row);
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
};

// One line on standard error that is redrawn at most ten times a second and wiped at the end.
// The bar does nothing where standard error is not a terminal. Any thread.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(uint64_t done, uint64_t total);
  void clear();
  // A line of its own; the bar goes on below it.
  void say(std::string_view line);

 private:
  void wipe();

  std::mutex mutex_;
  std::string label_;
  bool on_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace changeover::cli
