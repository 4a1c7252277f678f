// e2e_process, seen from the test.
#pragma once

#include <string>
#include <vector>

#include "os/process.h"
#include "tests/e2e/kit.h"

namespace changeover::e2e {

class Process {
 public:
  explicit Process(std::vector<std::string> arguments);
  // The next line it says; "" when it has ended or said nothing for ten seconds.
  std::string line();
  std::string ask();  // a rank: "VERSION PHASE [fenced] [open]"
  // Asks until the answer is this; "" if it became it, else the last answer.
  std::string wait_until(const std::string& answer);
  void kill();  // and waits for its end
  void stop();
  void go_on();
  pid_t pid() const { return child_->pid(); }

 private:
  os::SystemClock clock_;
  std::optional<os::Child> child_;
  std::string pending_;
};

Process rank_process(const Model& model, const Endpoint& endpoint, const std::string& engine,
                     int rank, int tp, Mode mode, uint64_t hold_at = UINT64_MAX);
Process publisher_process(const Model& model, const Endpoint& endpoint, int64_t version, int ranks,
                          uint64_t hold_at = UINT64_MAX);

}  // namespace changeover::e2e
