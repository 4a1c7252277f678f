// Copies of memory that is too large for the caches to be of use.
#pragma once

#include <cstddef>

namespace changeover::tensor {

// As memcpy, past the caches: the target's lines are not read before they are written, and nothing
// else is pushed out. Faster from a few hundred KB up, slower below. Other threads see the bytes as
// after a memcpy.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace changeover::tensor
