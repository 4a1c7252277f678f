// Any bytes: decoded without a read out of bounds, and what decodes encodes to the same bytes.
#include <cstdlib>

#include "reference/step_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = changeover::reference::decode_step_message(bytes);
  if (!message.ok()) {
    return 0;
  }
  const auto again = changeover::reference::decode_step_message(
      changeover::reference::encode_step_message(*message));
  if (!again.ok() || !(*again == *message)) {
    std::abort();
  }
  return 0;
}
