// Large copies that may be shared out among threads, which this folder has none of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace changeover::update {

struct BulkCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};

class BulkCopier {
 public:
  virtual ~BulkCopier() = default;
  // Does all of them, in any order; no two overlap. Returns when the last byte is there.
  virtual void copy(std::span<const BulkCopy> copies) = 0;
};

}  // namespace changeover::update
