// Element types: every one of the wire (torch's names) and of safetensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace changeover {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
  kF6E2M3,
  kF6E3M2,
  kF4,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBool,
  kC64,
};
inline constexpr int kDTypeCount = 22;

// Bits of one element: 4 (F4), 6 (F6_*), 8 .. 64. C64 is two float32.
int dtype_bits(DType dtype);
// Bytes of one element; 0 for sub-byte types, whose tensors are addressed packed.
int dtype_bytes(DType dtype);

// torch's name without the prefix, as rule W2 spells it ("bfloat16"); nullopt where the wire has
// no name for it (F4, F6, C64).
std::optional<std::string_view> wire_dtype_name(DType dtype);
std::optional<DType> dtype_from_wire_name(std::string_view name);

// safetensors' name ("BF16"). Every DType has one except the two FNUZ types.
std::optional<std::string_view> safetensors_dtype_name(DType dtype);
std::optional<DType> dtype_from_safetensors_name(std::string_view name);

// For messages: the wire name, else the safetensors name. Never empty.
std::string_view dtype_name(DType dtype);

}  // namespace changeover
