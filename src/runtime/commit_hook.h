#pragma once

#include <string>

#include <changeover/subscriber.h>

#include "runtime/callback.h"

namespace changeover::runtime {

// What the hook says for the report (rule T12), "" without one. The version is committed when it
// runs: a hook that fails does not undo that, it is reported (rule S5).
inline std::string run_commit_hook(const SubscriberOptions& options) {
  std::string said;
  if (!options.on_commit) {
    return said;
  }
  const Status status = call("on_commit", [&] {
    said = options.on_commit();
    return Status();
  });
  return status.ok() ? said : status.message();
}

}  // namespace changeover::runtime
