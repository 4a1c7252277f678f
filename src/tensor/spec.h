// Checks that every reader and writer of tensors shares.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <changeover/status.h>
#include <changeover/tensor.h>

namespace changeover::tensor {

// ok for a non-empty name of valid UTF-8 without NUL, at most kTensorNameBytesMax bytes (rule W7).
Status check_name(std::string_view name);

// ok if dimensions and strides match in number, the byte count is known, sub-byte dtypes are
// contiguous and data is there where the view has elements; kInvalidArgument else.
Status check_view(const TensorView& view);

// "[2,3]" and "float32 [2,3]", for messages.
std::string describe_shape(std::span<const int64_t> shape);
std::string describe(DType dtype, std::span<const int64_t> shape);

}  // namespace changeover::tensor
