#include "base/prng.h"

#include <cstring>

namespace changeover::base {

namespace {

// Spreads one seed over the state, as the generator's authors advise.
uint64_t split_mix(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t rotate_left(uint64_t x, int k) {
  return (x << k) | (x >> (64 - k));
}

}  // namespace

Prng::Prng(uint64_t seed) {
  for (uint64_t& word : state_) {
    word = split_mix(seed);
  }
}

uint64_t Prng::next() {
  const uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate_left(state_[3], 45);
  return result;
}

uint64_t Prng::below(uint64_t bound) {
  // Values under 2^64 mod bound would make the low results likelier; they are drawn again.
  const uint64_t reject_below = (0 - bound) % bound;
  uint64_t value = next();
  while (value < reject_below) {
    value = next();
  }
  return value % bound;
}

int64_t Prng::between(int64_t low, int64_t high) {
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t step = width == 0 ? next() : below(width);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + step);
}

double Prng::unit() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

void Prng::fill(std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = next();
    std::memcpy(bytes.data() + i, &word, bytes.size() - i < 8 ? bytes.size() - i : 8);
  }
}

}  // namespace changeover::base
