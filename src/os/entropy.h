// The kernel's random bytes, for incarnations, challenges and seeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <changeover/types.h>

namespace changeover::os {

// Fills all of it, or says why not (kUnavailable); never a weaker source.
Status fill_random(std::span<std::byte> bytes);

// A fresh incarnation: 128 random bits (never repeats, also after a restart).
Result<Incarnation> draw_incarnation();

}  // namespace changeover::os
