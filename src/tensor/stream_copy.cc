#include "tensor/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace changeover::tensor {

#if defined(__SSE2__)

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) {
    return;  // An empty tensor has no address.
  }
  constexpr size_t kLineBytes = 64;
  constexpr size_t kAheadBytes = 512;  // Of the read: the hardware's own prefetch stops at pages.
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % kLineBytes;
  const size_t head = std::min(bytes, misaligned == 0 ? 0 : kLineBytes - misaligned);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLineBytes <= bytes; at += kLineBytes) {
    const auto* in = reinterpret_cast<const __m128i*>(from + at);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    _mm_prefetch(reinterpret_cast<const char*>(from + at) + kAheadBytes, _MM_HINT_NTA);
    const __m128i a = _mm_loadu_si128(in);
    const __m128i b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2);
    const __m128i d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();  // These stores are ordered by nothing else.
  std::memcpy(to + at, from + at, bytes - at);
}

#else

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace changeover::tensor
