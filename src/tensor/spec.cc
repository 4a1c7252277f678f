#include "tensor/spec.h"

#include <algorithm>

#include "base/utf8.h"

namespace changeover {

Result<int64_t> element_count(std::span<const int64_t> shape) {
  if (shape.size() > kTensorDimsMax) {
    return Status(Code::kInvalidArgument, std::to_string(shape.size()) + " dimensions, at most " +
                                              std::to_string(kTensorDimsMax) + " are allowed (W7)");
  }
  int64_t count = 1;
  bool empty = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      return Status(Code::kInvalidArgument, "dimension " + std::to_string(i) + " is " +
                                                std::to_string(shape[i]) +
                                                ", it may not be negative (W7)");
    }
    // A zero elsewhere does not excuse the others: strides are made of partial products.
    if (shape[i] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(count, shape[i], &count)) {
      return Status(
          Code::kInvalidArgument,
          "the number of elements of " + tensor::describe_shape(shape) + " overflows 64 bits (W7)");
    }
  }
  return empty ? 0 : count;
}

Result<int64_t> byte_count(DType dtype, std::span<const int64_t> shape) {
  CHANGEOVER_TRY_ASSIGN(const int64_t elements, element_count(shape));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, dtype_bytes(dtype), &bytes)) {
    return Status(
        Code::kInvalidArgument,
        "the number of bytes of " + tensor::describe(dtype, shape) + " overflows 64 bits (W7)");
  }
  if (dtype_bytes(dtype) != 0) {
    return bytes;
  }
  if (__builtin_mul_overflow(elements, dtype_bits(dtype), &bytes)) {
    return Status(
        Code::kInvalidArgument,
        "the number of bits of " + tensor::describe(dtype, shape) + " overflows 64 bits (W7)");
  }
  if (bytes % 8 != 0) {
    return Status(Code::kInvalidArgument, tensor::describe(dtype, shape) + " is " +
                                              std::to_string(bytes) +
                                              " bits, not a whole number of bytes");
  }
  return bytes / 8;
}

bool is_contiguous(const TensorView& view) {
  if (view.strides.empty() ||
      std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end()) {
    return true;
  }
  if (view.strides.size() != view.shape.size()) {
    return false;
  }
  int64_t wanted = 1;
  for (size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] == 1) {
      continue;
    }
    if (view.strides[i] != wanted || __builtin_mul_overflow(wanted, view.shape[i], &wanted)) {
      return false;
    }
  }
  return true;
}

namespace tensor {

Status check_name(std::string_view name) {
  if (name.empty()) {
    return {Code::kInvalidArgument, "a tensor's name is empty (W7)"};
  }
  if (name.size() > kTensorNameBytesMax) {
    return {Code::kInvalidArgument, "the name " + base::quoted(name, 60) + " has " +
                                        std::to_string(name.size()) + " bytes, at most " +
                                        std::to_string(kTensorNameBytesMax) + " are allowed (W7)"};
  }
  if (!base::is_valid_utf8(name)) {
    return {Code::kInvalidArgument, "the name " + base::quoted(name) + " is not UTF-8 (W7)"};
  }
  if (name.find('\0') != std::string_view::npos) {
    return {Code::kInvalidArgument, "the name " + base::quoted(name) + " holds a NUL (W7)"};
  }
  return {};
}

Status check_view(const TensorView& view) {
  CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(view.dtype, view.shape));
  if (!view.strides.empty() && view.strides.size() != view.shape.size()) {
    return {Code::kInvalidArgument, std::to_string(view.strides.size()) + " strides for " +
                                        std::to_string(view.shape.size()) + " dimensions"};
  }
  if (dtype_bytes(view.dtype) == 0 && !is_contiguous(view)) {
    return {Code::kInvalidArgument,
            describe(view.dtype, view.shape) + " is packed below a byte and must be contiguous"};
  }
  if (bytes > 0 && view.data == nullptr) {
    return {Code::kInvalidArgument,
            describe(view.dtype, view.shape) + " has no memory (data is null)"};
  }
  // The farthest element must be within reach of 64-bit byte offsets.
  int64_t reach = 0;
  for (size_t i = 0; bytes > 0 && i < view.strides.size(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(view.strides[i], view.shape[i], &step) || step == INT64_MIN ||
        __builtin_mul_overflow(step, 8, &step) ||
        __builtin_add_overflow(reach, step < 0 ? -step : step, &reach)) {
      return {Code::kInvalidArgument,
              "the strides of " + describe(view.dtype, view.shape) + " overflow 64 bits"};
    }
  }
  return {};
}

std::string describe_shape(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::string describe(DType dtype, std::span<const int64_t> shape) {
  return std::string(dtype_name(dtype)) + " " + describe_shape(shape);
}

}  // namespace tensor
}  // namespace changeover
