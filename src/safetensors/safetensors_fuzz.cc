// A file that is accepted must come back the same from the header we make for its tensors.
#include <string>

#include "safetensors/header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace changeover;
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  const auto header = safetensors::parse_header(file);
  if (!header.ok()) {
    return 0;
  }
  std::vector<TensorSpec> specs;
  uint64_t data_bytes = 0;
  for (const safetensors::Tensor& tensor : header->tensors) {
    if (tensor.position > size || tensor.bytes > size - tensor.position) {
      __builtin_trap();
    }
    specs.push_back(tensor.spec);
    data_bytes += tensor.bytes;
  }
  const auto made = safetensors::make_header(specs, header->metadata);
  if (!made.ok()) {
    __builtin_trap();
  }
  const std::string again_file = *made + std::string(data_bytes, '\0');
  const auto again = safetensors::parse_header(std::as_bytes(std::span(again_file)));
  if (!again.ok() || again->tensors.size() != specs.size() || again->metadata != header->metadata) {
    __builtin_trap();
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (again->tensors[i].spec != specs[i]) {
      __builtin_trap();
    }
  }
  return 0;
}
