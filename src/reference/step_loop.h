// Runs one rank's steps: the machines on one thread, guards and passes on another.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <changeover/endpoint.h>
#include <changeover/fence.h>
#include <changeover/status.h>
#include <changeover/steps.h>

#include "reference/step_conductor.h"
#include "reference/step_follower.h"
#include "reference/step_worker.h"

namespace changeover::reference {

// The abstract unix socket of an engine's rank 0: "changeover.step.UID.DIGEST", the digest over
// endpoint, job and engine, so that engines of one host never meet by chance.
std::string step_socket_name(const Endpoint& endpoint, const std::string& job,
                             const std::string& engine);

struct StepLoopOptions {
  std::string socket;  // abstract name; rank 0 listens there, the others dial it
  StepFollower::Options follower;
  StepConductor::Options conductor;  // rank 0 only; its identity is the follower's
};

class StepLoop {
 public:
  virtual ~StepLoop() = default;  // Stops and joins both threads.

  // kRefused where another rank 0 of this engine listens. `engine.fence` must outlive it; its
  // functions are called on the worker's thread.
  static Result<std::unique_ptr<StepLoop>> start(StepLoopOptions options,
                                                 StepWorker::Engine engine);

  // Any thread.
  virtual StepStatus status() const = 0;
};

}  // namespace changeover::reference
