// A rank without an inference engine: live parameters, the fence, and numbered steps over them.
//
// It is what `changeover receive` runs, and what a real engine is held against: it keeps reading
// its parameters under guards while versions stream in, together with the other ranks of its
// engine, so that a mix of two versions would be seen.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <changeover/load_plan.h>
#include <changeover/status.h>
#include <changeover/steps.h>
#include <changeover/subscriber.h>

namespace changeover {

struct ReferenceRankOptions {
  std::filesystem::path model;  // A folder with config.json, or the file itself.
  // Endpoint, job, engine, rank, engine_size (all ranks, tp x dp), mode, token, deadlines.
  // A file: endpoint takes engine_size 1 only; its one stream is received by run() before the
  // first step, and decided alone.
  SubscriberOptions subscriber;
  // With engine_size: an EngineShape, by which the rank's shares in `plan` are set.
  int32_t dp_size = 1;
  int32_t ep_size = 1;
  PlanOptions plan;
  // Where the admin socket is made (0600, unlinked on the way out); empty = none.
  std::string admin_path;
  // Name of the abstract unix socket over which rank 0 conducts the steps; empty = derived from
  // endpoint, job, engine and uid, so that the ranks of one engine find each other.
  std::string step_socket;
  // The least time from the start of one step to the start of the next.
  std::chrono::nanoseconds step_interval = std::chrono::milliseconds(20);
  // Bytes a step reads at most; a larger rank is read in turns, evenly spread over all parameters.
  uint64_t step_bytes_max = 4ull << 20;
  // file: only: return from run() once the stream was received, instead of stepping on.
  bool once = false;
};

class ReferenceRank {
 public:
  virtual ~ReferenceRank() = default;

  // Makes the plan, allocates the parameters and checks what can be checked alone. Starts no
  // thread and opens no socket.
  static Result<std::unique_ptr<ReferenceRank>> open(ReferenceRankOptions options);

  // Receives, steps and answers until request_stop() or an admin "stop"; then ok. Else the reason
  // why it could not start (admin socket in use, a second rank 0) or, for file:, why the stream
  // was refused. At most once.
  virtual Status run() = 0;

  // Any thread, and a signal handler: one write to an eventfd. Idempotent.
  virtual void request_stop() = 0;

  // Any thread.
  virtual RankStatus status() const = 0;
  // The last update's report; none before the first.
  virtual std::optional<RankReport> last_report() const = 0;
  virtual StepStatus steps() const = 0;
  virtual const LoadPlan& plan() const = 0;
};

}  // namespace changeover
