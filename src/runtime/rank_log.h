#pragma once

#include <string>

#include <changeover/subscriber.h>

#include "runtime/callback.h"

namespace changeover::runtime {

// One line for the caller's log, under the rank's name. A log that throws costs that line.
inline void log_line(const SubscriberOptions& options, const std::string& line) {
  if (options.log) {
    (void)call("log", [&] {
      options.log(RankName{options.engine, options.rank}.to_text() + ": " + line);
      return Status();
    });
  }
}

}  // namespace changeover::runtime
