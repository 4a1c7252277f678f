// What the machine says of itself: to whoever looks, and when an update ends.
#include <algorithm>
#include <string>

#include "protocol/rank_machine.h"

namespace changeover::protocol {

std::string_view RankMachine::phase_text() const {
  switch (phase_) {
    case Phase::kReceiving:
      return "receiving";
    case Phase::kEnded:
      return "received";
    case Phase::kStaged:
      return "staged";
    case Phase::kPrepared:
      return "prepared";
    case Phase::kInDoubt:
      return "in_doubt";
    case Phase::kFinishing:
      return "finishing";
    case Phase::kIdle:
      break;
  }
  return welcomed_ ? "idle" : "disconnected";
}

RankReport RankMachine::make_report() const {
  RankReport report = transaction_.report();
  report.bytes_received = std::max(report.bytes_received, payload_bytes_);
  report.road = options_.road;
  report.road_reason = options_.road_reason;
  report.seconds = seconds_;
  report.cache_policy = options_.cache_policy;
  report.cache_result = cache_result_;
  if (transaction_.prepared()) {
    report.error = {Code::kInDoubt, "prepared version " +
                                        std::to_string(transaction_.target().version) +
                                        "; the publisher's decision did not come"};
  }
  return report;
}

}  // namespace changeover::protocol
