// What moves: the description of a tensor, and a strided view of one in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <changeover/dtype.h>
#include <changeover/status.h>

namespace changeover {

inline constexpr int kTensorDimsMax = 64;            // rule W7
inline constexpr size_t kTensorNameBytesMax = 4096;  // rule W7

struct TensorSpec {
  std::string name;  // Non-empty valid UTF-8, at most kTensorNameBytesMax bytes.
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // Empty = a scalar (one element); a 0 makes it empty of bytes.
  bool operator==(const TensorSpec&) const = default;
};

// Product of the dimensions, checked: kInvalidArgument (naming the rule) for a negative dimension,
// more than kTensorDimsMax dimensions, or a product that overflows int64.
Result<int64_t> element_count(std::span<const int64_t> shape);
// Bytes of the tensor in C order without padding; sub-byte types must fill whole bytes.
Result<int64_t> byte_count(DType dtype, std::span<const int64_t> shape);

// Borrowed memory of one tensor. `strides` are in elements, one per dimension, 0 and negative
// allowed; empty strides = C-contiguous. Sub-byte dtypes must be contiguous.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  const std::byte* data = nullptr;  // Address of element [0, 0, ...].
};

// True if the view's elements lie back to back in C order (size-1 dimensions do not count).
bool is_contiguous(const TensorView& view);

}  // namespace changeover
