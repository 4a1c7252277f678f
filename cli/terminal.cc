#include "cli/terminal.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

#include "cli/emit.h"

namespace changeover::cli {

bool is_terminal(std::FILE* file) {
  return isatty(fileno(file)) == 1;
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1000) {
    return fmt::format("{} B", bytes);
  }
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

std::string human_seconds(double seconds) {
  if (seconds < 0.001) {
    return fmt::format("{:.0f} us", seconds * 1e6);
  }
  if (seconds < 1) {
    return fmt::format("{:.0f} ms", seconds * 1e3);
  }
  return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 1);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::string printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F: controls as well.
      out += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      out += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, text[i]);
    }
  }
  return out;
}

std::string coloured(std::string_view text, Colour colour, std::FILE* file) {
  static constexpr int kCodes[] = {0, 32, 31, 33, 2};
  if (colour == Colour::kNone || !is_terminal(file) || std::getenv("NO_COLOR") != nullptr) {
    return std::string(text);
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<int>(colour)], text);
}

namespace {

// Characters a terminal shows: bytes that do not continue a UTF-8 sequence.
size_t width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<std::string> header, std::vector<size_t> right)
    : right_(std::move(right)) {
  rows_.push_back(std::move(header));
}

void Table::add(std::vector<std::string> row) {
  row.resize(rows_.front().size());
  rows_.push_back(std::move(row));
}

std::string Table::to_string() const {
  std::vector<size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width(row[i]), ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      line += (i == 0 ? "" : "  ") + (right ? pad + row[i] : row[i] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)),
      on_(is_terminal(stderr)),
      start_(std::chrono::steady_clock::now()) {}

void ProgressBar::wipe() {
  if (drawn_) {
    emit(stderr, "\r\x1b[K");
    drawn_ = false;
  }
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  wipe();
}

void ProgressBar::say(std::string_view line) {
  const std::lock_guard lock(mutex_);
  wipe();
  emit(stderr, "{}\n", line);
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (!on_ || total == 0 || (drawn_ && now - last_ < std::chrono::milliseconds(100))) {
    return;
  }
  last_ = now;
  drawn_ = true;
  constexpr size_t kCells = 30;
  const size_t filled = std::min<uint64_t>(kCells, done * kCells / total);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto rate = static_cast<uint64_t>(seconds > 0 ? static_cast<double>(done) / seconds : 0);
  emit(stderr, "\r{} [{}{}] {} of {}, {}/s\x1b[K", label_, std::string(filled, '#'),
       std::string(kCells - filled, '.'), human_bytes(done), human_bytes(total), human_bytes(rate));
  std::fflush(stderr);
}

}  // namespace changeover::cli
