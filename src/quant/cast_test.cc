#include "quant/cast.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace changeover::quant {
namespace {

float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Written out by hand from the formats' definitions: {float32, bfloat16, float16}.
struct Vector {
  uint32_t f32;
  uint16_t bf16;
  uint16_t f16;
};
constexpr Vector kVectors[] = {
    {0x00000000, 0x0000, 0x0000},  // 0
    {0x80000000, 0x8000, 0x8000},  // -0
    {0x3F800000, 0x3F80, 0x3C00},  // 1
    {0xC0000000, 0xC000, 0xC000},  // -2
    {0x3F808000, 0x3F80, 0x3C04},  // 1 + 2^-8: a tie of bfloat16, to even
    {0x3F818000, 0x3F82, 0x3C0C},  // 1 + 3 x 2^-8: a tie, to even, up
    {0x3F808001, 0x3F81, 0x3C04},  // just over the tie
    {0x3F801000, 0x3F80, 0x3C00},  // 1 + 2^-11: a tie of float16, to even
    {0x3F803000, 0x3F80, 0x3C02},  // 1 + 3 x 2^-11: a tie, up
    {0x477FE000, 0x4780, 0x7BFF},  // 65504, float16's largest
    {0x477FEFFF, 0x4780, 0x7BFF},  // just under 65520
    {0x477FF000, 0x4780, 0x7C00},  // 65520: half way, to even, infinity
    {0x7F7FFFFF, 0x7F80, 0x7C00},  // float32's largest rounds to infinity
    {0x7F800000, 0x7F80, 0x7C00},  // infinity
    {0xFF800000, 0xFF80, 0xFC00},  // -infinity
    {0x7FC00000, 0x7FC0, 0x7E00},  // quiet NaN
    {0xFF800001, 0xFFC0, 0xFE00},  // a NaN whose low bits are cut off is still a NaN
    {0x38800000, 0x3880, 0x0400},  // 2^-14, float16's smallest normal
    {0x387FC000, 0x3880, 0x03FF},  // float16's largest subnormal
    {0x33800000, 0x3380, 0x0001},  // 2^-24, float16's smallest
    {0x33000000, 0x3300, 0x0000},  // 2^-25: half of it, to even
    {0x33000001, 0x3300, 0x0001},  // just over
    {0x33C00000, 0x33C0, 0x0002},  // 3 x 2^-25: a tie, up
    {0x00000001, 0x0000, 0x0000},  // float32's smallest
    {0x00018000, 0x0002, 0x0000},  // a tie among bfloat16's subnormals, up
};

TEST(Cast, VectorsFromFloat32) {
  for (const Vector& v : kVectors) {
    EXPECT_EQ(bf16_bits_from_f32(v.f32), v.bf16) << std::hex << v.f32;
    EXPECT_EQ(f16_bits_from_f32(v.f32), v.f16) << std::hex << v.f32;
  }
}

TEST(Cast, EveryFloat16AndBfloat16SurvivesFloat32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const bool f16_nan = (half & 0x7C00) == 0x7C00 && (half & 0x3FF) != 0;
    const bool bf16_nan = (half & 0x7F80) == 0x7F80 && (half & 0x7F) != 0;
    EXPECT_EQ(f16_bits_from_f32(f32_bits_from_f16(half)), f16_nan ? half | 0x200 : half) << bits;
    EXPECT_EQ(bf16_bits_from_f32(f32_bits_from_bf16(half)), bf16_nan ? half | 0x40 : half) << bits;
  }
}

TEST(Cast, Float16ValuesAreWhatTheFormatSays) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const int exponent = static_cast<int>(bits >> 10);
    const double mantissa = static_cast<double>(bits & 0x3FF);
    const double value =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    EXPECT_EQ(as_float(f32_bits_from_f16(static_cast<uint16_t>(bits))), value) << bits;
  }
}

// Between any two neighbours the nearer one is chosen, and the even one half way.
TEST(Cast, RoundsToTheNearestOfTwoNeighbours) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = as_float(f32_bits_from_f16(static_cast<uint16_t>(bits)));
    const double high = as_float(f32_bits_from_f16(static_cast<uint16_t>(bits + 1)));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: 12 significant bits
    uint32_t middle_bits;
    std::memcpy(&middle_bits, &middle, sizeof middle_bits);
    ASSERT_EQ(f16_bits_from_f32(middle_bits), bits + (bits & 1)) << bits;
    ASSERT_EQ(f16_bits_from_f32(middle_bits + 1), bits + 1) << bits;
    ASSERT_EQ(f16_bits_from_f32(middle_bits - 1), bits) << bits;
  }
}

TEST(Cast, BulkAgreesWithSingleElementsAtOddAddresses) {
  std::vector<std::byte> in(4 * std::size(kVectors) + 1);
  std::vector<std::byte> out(2 * std::size(kVectors) + 1);
  std::vector<std::byte> back(4 * std::size(kVectors) + 1);
  for (size_t i = 0; i < std::size(kVectors); ++i) {
    std::memcpy(in.data() + 1 + 4 * i, &kVectors[i].f32, 4);
  }
  for (DType half : {DType::kF16, DType::kBF16}) {
    ASSERT_TRUE(can_cast(DType::kF32, half) && can_cast(half, DType::kF32));
    cast(DType::kF32, in.data() + 1, half, out.data() + 1, std::size(kVectors));
    cast(half, out.data() + 1, DType::kF32, back.data() + 1, std::size(kVectors));
    for (size_t i = 0; i < std::size(kVectors); ++i) {
      uint16_t got = 0;
      uint32_t again = 0;
      std::memcpy(&got, out.data() + 1 + 2 * i, 2);
      std::memcpy(&again, back.data() + 1 + 4 * i, 4);
      EXPECT_EQ(got, half == DType::kF16 ? kVectors[i].f16 : kVectors[i].bf16);
      EXPECT_EQ(again, half == DType::kF16 ? f32_bits_from_f16(got) : f32_bits_from_bf16(got));
    }
  }
  EXPECT_FALSE(can_cast(DType::kF64, DType::kF32));
  EXPECT_FALSE(can_cast(DType::kF32, DType::kI32));
}

// float16 and bfloat16 meet in float32, so there is one rounding and not two.
TEST(Cast, BetweenTheSixteenBitTypesThereIsOneRounding) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    uint16_t out = 0;
    cast(DType::kF16, reinterpret_cast<const std::byte*>(&half), DType::kBF16,
         reinterpret_cast<std::byte*>(&out), 1);
    ASSERT_EQ(out, bf16_bits_from_f32(f32_bits_from_f16(half)));
    cast(DType::kBF16, reinterpret_cast<const std::byte*>(&half), DType::kF16,
         reinterpret_cast<std::byte*>(&out), 1);
    ASSERT_EQ(out, f16_bits_from_f32(f32_bits_from_bf16(half)));
  }
}

}  // namespace
}  // namespace changeover::quant
