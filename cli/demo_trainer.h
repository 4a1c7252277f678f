// The demo's trainer: one process that holds a model in memory, changes it a little for each
// version, and publishes it when told to.
#pragma once

#include <cstdint>
#include <string>

namespace changeover::cli {

struct TrainerOptions {
  std::string model;     // Safetensors file or folder: version 1.
  std::string endpoint;  // Where it listens.
  uint64_t seed = 1;
  uint32_t ranks = 0;  // It begins once so many are there.
};

// Reads commands and writes answers, a line each, until `read_fd` ends:
//
//   publish N [hold]  -> progress SENT TOTAL ..., report JSON | error TEXT
//                        with `hold`: half, and waits for `go` in the middle of the stream
//   save PATH         -> saved | error TEXT         the model as it is now
//
// The first line it writes is `endpoint ENDPOINT TENSORS BYTES` (or an error).
int run_trainer(const TrainerOptions& options, int read_fd, int write_fd);

}  // namespace changeover::cli
