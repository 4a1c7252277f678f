// A safetensors file's header: u64 length (little-endian), JSON of that length, then the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <changeover/checkpoint.h>
#include <changeover/status.h>
#include <changeover/tensor.h>

namespace changeover::safetensors {

struct Tensor {
  TensorSpec spec;
  uint64_t position = 0;  // Of its first byte in the file.
  uint64_t bytes = 0;
  bool operator==(const Tensor&) const = default;
};

struct Header {
  std::vector<Tensor> tensors;  // In data order; zero-size ones at one place in header order.
  std::map<std::string, std::string> metadata;
};

// Checks everything before it returns anything: the length, the JSON, every tensor, and that the
// tensors cover the data exactly. kCorrupt names tensor, rule and numbers. A file that is plainly
// of another kind (zip, pickle, GGUF, a Git LFS pointer, HTML) is refused by that name.
Result<Header> parse_header(std::span<const std::byte> file, const SafetensorsLimits& limits = {});

// Length, JSON and padding of a file with these tensors back to back in this order, the data
// starting at a multiple of 8. kInvalidArgument for what parse_header() would refuse.
Result<std::string> make_header(std::span<const TensorSpec> specs,
                                const std::map<std::string, std::string>& metadata,
                                const SafetensorsLimits& limits = {});

}  // namespace changeover::safetensors
