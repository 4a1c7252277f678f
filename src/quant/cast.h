// Declared changes of floating dtype (PieceOp::kCast), by integer operations alone: round to
// nearest, ties to even; subnormals kept; overflow to infinity; a NaN stays a (quiet) NaN of its
// sign.
#pragma once

#include <cstddef>
#include <cstdint>

#include <changeover/dtype.h>

namespace changeover::quant {

uint32_t f32_bits_from_f16(uint16_t bits);
uint32_t f32_bits_from_bf16(uint16_t bits);
uint16_t f16_bits_from_f32(uint32_t bits);
uint16_t bf16_bits_from_f32(uint32_t bits);

// True among float16, bfloat16 and float32 (a dtype to itself included).
bool can_cast(DType source, DType target);

// Converts `count` packed little-endian elements; neither side needs to be aligned. One rounding
// at most: 16-bit types meet in float32, which holds both exactly. REQUIRES: can_cast().
void cast(DType source, const std::byte* in, DType target, std::byte* out, size_t count);

}  // namespace changeover::quant
