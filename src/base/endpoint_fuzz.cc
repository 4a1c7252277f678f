// Whatever parses must come back the same from its own text.
#include <changeover/endpoint.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using changeover::Endpoint;
  const auto parsed = Endpoint::parse({reinterpret_cast<const char*>(data), size});
  if (parsed.ok()) {
    const auto again = Endpoint::parse(parsed->to_string());
    if (!again.ok() || *again != *parsed) {
      __builtin_trap();
    }
  }
  return 0;
}
