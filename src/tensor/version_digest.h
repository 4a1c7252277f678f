// The digest of a whole version, from the digests of its tensors.
#pragma once

#include <cstddef>
#include <vector>

#include <changeover/tensor.h>
#include <changeover/types.h>

namespace changeover::tensor {

// Takes each full source tensor's description and digest, in any order, and gives one digest:
// XXH3-128 over the tensors sorted by name bytes, each as u32 length and name, u32 length and
// dtype name, u32 number of dimensions, int64 dimensions, 16 digest bytes; integers little-endian.
//
// Copies what it is given. clear() keeps the memory, so the next update allocates nothing.
class VersionDigester {
 public:
  void clear();
  void add(const TensorSpec& spec, const Digest& digest);
  size_t tensors() const { return records_.size(); }
  Digest finish();  // More may be added after.

 private:
  struct Record {
    size_t begin = 0;
    size_t bytes = 0;
    size_t name_bytes = 0;
  };
  std::vector<std::byte> bytes_;  // The records one after another, as they are digested.
  std::vector<Record> records_;
};

}  // namespace changeover::tensor
