// Metadata in the very form that senders write it, read in one pass.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "wire/frame.h"

namespace changeover::wire {

// Slots of a hash table over a frame's names; kept so that no frame allocates it anew.
using NameTable = std::vector<uint64_t>;

// True: `text` is what encode_metadata() writes for tensors back to back from offset 0 with names
// that need no escape, it keeps every rule of W7 for this payload, and `entries` are its tensors.
// False: anything else, `entries` is of no use, and the strict reader says what it is. The memory
// of `entries` and `names` is used again.
bool read_canonical(std::string_view text, uint64_t payload_bytes, std::vector<Entry>& entries,
                    NameTable& names);

}  // namespace changeover::wire
