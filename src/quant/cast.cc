#include "quant/cast.h"

#include <bit>
#include <cstring>

namespace changeover::quant {

namespace {

static_assert(std::endian::native == std::endian::little, "elements are read as they travel");

template <typename T>
T load(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

template <typename T>
void store(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof value);
}

// `value` / 2^shift, to nearest, ties to even. REQUIRES: 1 <= shift <= 31.
uint32_t shift_to_nearest(uint32_t value, int shift) {
  const uint32_t half = 1u << (shift - 1);
  const uint32_t rest = value & ((half << 1) - 1);
  const uint32_t kept = value >> shift;
  return kept + ((rest > half || (rest == half && (kept & 1) != 0)) ? 1 : 0);
}

template <auto kConvert, typename In, typename Out>
void convert_all(const std::byte* in, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    store<Out>(kConvert(load<In>(in + i * sizeof(In))), out + i * sizeof(Out));
  }
}

uint16_t bf16_from_f16(uint16_t bits) {
  return bf16_bits_from_f32(f32_bits_from_f16(bits));
}
uint16_t f16_from_bf16(uint16_t bits) {
  return f16_bits_from_f32(f32_bits_from_bf16(bits));
}

bool is_castable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

uint32_t f32_bits_from_bf16(uint16_t bits) {
  return static_cast<uint32_t>(bits) << 16;
}

uint32_t f32_bits_from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) {
    return sign | 0x7F800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0);
  }
  if (exponent != 0) {
    return sign | ((exponent + 112) << 23) | (mantissa << 13);
  }
  if (mantissa == 0) {
    return sign;
  }
  // Subnormal: mantissa x 2^-24, made normal by moving its top bit to the implicit place.
  const int shift = std::countl_zero(mantissa) - 21;
  return sign | (static_cast<uint32_t>(113 - shift) << 23) | (((mantissa << shift) & 0x3FFu) << 13);
}

uint16_t bf16_bits_from_f32(uint32_t bits) {
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>(shift_to_nearest(bits, 16));
}

uint16_t f16_bits_from_f32(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  }
  if (magnitude >= 0x47800000u) {  // 65536 and more, infinity; 65520 .. 65536 round up below.
    return static_cast<uint16_t>(sign | 0x7C00u);
  }
  if (magnitude >= 0x38800000u) {  // 2^-14 and more: normal.
    return static_cast<uint16_t>(sign | shift_to_nearest(magnitude - (112u << 23), 13));
  }
  const int exponent = static_cast<int>(magnitude >> 23);
  if (exponent < 102) {  // Under 2^-25: to zero.
    return static_cast<uint16_t>(sign);
  }
  const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  return static_cast<uint16_t>(sign | shift_to_nearest(mantissa, 126 - exponent));
}

bool can_cast(DType source, DType target) {
  return is_castable(source) && is_castable(target);
}

void cast(DType source, const std::byte* in, DType target, std::byte* out, size_t count) {
  if (source == target) {
    std::memcpy(out, in, count * static_cast<size_t>(dtype_bytes(source)));
  } else if (source == DType::kF32 && target == DType::kBF16) {
    convert_all<bf16_bits_from_f32, uint32_t, uint16_t>(in, out, count);
  } else if (source == DType::kF32) {
    convert_all<f16_bits_from_f32, uint32_t, uint16_t>(in, out, count);
  } else if (source == DType::kBF16 && target == DType::kF32) {
    convert_all<f32_bits_from_bf16, uint16_t, uint32_t>(in, out, count);
  } else if (source == DType::kBF16) {
    convert_all<f16_from_bf16, uint16_t, uint16_t>(in, out, count);
  } else if (target == DType::kF32) {
    convert_all<f32_bits_from_f16, uint16_t, uint32_t>(in, out, count);
  } else {
    convert_all<bf16_from_f16, uint16_t, uint16_t>(in, out, count);
  }
}

}  // namespace changeover::quant
