// One connection between two ranks: step messages, each after its length (uint32, little-endian).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <changeover/status.h>

#include "os/fd.h"
#include "reference/step_message.h"

namespace changeover::reference {

class StepLink {
 public:
  // What a peer that does not read may leave in our memory before it is given up.
  static constexpr size_t kUnsentBytesMax = 64 << 10;

  explicit StepLink(os::Fd fd) : fd_(std::move(fd)) {}

  const os::Fd& fd() const { return fd_; }
  bool has_unsent() const { return !unsent_.empty(); }

  // Appends what has arrived. kUnavailable when the peer has closed, kCorrupt for a length over
  // the ceiling or a message that breaks a rule: the link is of no use then.
  Status read(std::vector<StepMessage>& messages);
  Status send(const StepMessage& message);
  Status flush();

 private:
  Status parse(std::vector<StepMessage>& messages);

  os::Fd fd_;
  std::vector<std::byte> arrived_;
  std::vector<std::byte> unsent_;
};

}  // namespace changeover::reference
