#pragma once

#include <changeover/subscriber.h>

#include "update/fence.h"

namespace changeover::runtime {

// What a status says of the fence is read from the fence itself: it moves in the middle of a turn.
// A version that readers may use is named, also where `status` has not heard of it yet.
inline void add_fence(const update::FenceState& fence, RankStatus& status) {
  status.gate_open = fence.open();
  status.fence_reason = !status.gate_open && fence.up() ? fence.reason() : "";
  status.fenced = !status.fence_reason.empty();
  if (status.gate_open) {
    const auto live = fence.version();
    if (live && *live != update::kVersionUnknown && live != status.version) {
      status.version = live;
      status.digest.reset();
    }
  }
}

}  // namespace changeover::runtime
