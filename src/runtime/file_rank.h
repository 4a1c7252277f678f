// A rank that takes its one update from a recorded stream and decides alone.
#pragma once

#include <changeover/report.h>
#include <changeover/subscriber.h>

#include "os/clock.h"
#include "runtime/waiting_fence.h"
#include "update/transaction.h"

namespace changeover::runtime {

// The version is the recording's own. An error only where no update was begun (no such file, a
// version that is not newer); how a begun one ended is the report's.
Result<RankReport> receive_file(const SubscriberOptions& options, const os::Clock& clock,
                                WaitingFence& fence, update::Transaction& transaction);

}  // namespace changeover::runtime
