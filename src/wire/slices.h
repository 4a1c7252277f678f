// Tensors that are split over frames (rule W6), checked from frame to frame.
#pragma once

#include <cstdint>
#include <span>

#include <changeover/status.h>
#include <changeover/tensor.h>

#include "wire/frame.h"

namespace changeover::wire {

// Parts of a tensor come in order, one per frame, in frames that follow one another; each frame by
// itself was checked by decode_metadata().
class SliceTracker {
 public:
  // The next frame's entries. kCorrupt names the tensor, the byte that was expected and what came;
  // the stream cannot be applied then.
  Status on_frame(std::span<const Entry> entries);
  // kCorrupt where the last tensor lacks parts.
  Status on_end() const;

 private:
  Status check_next(const Entry* part) const;

  TensorSpec open_;    // The tensor that has had a part and waits for more,
  uint64_t next_ = 0;  // from this byte on; 0 = there is none.
  uint64_t total_ = 0;
};

}  // namespace changeover::wire
