// The demo's ranks: real `changeover receive` processes, asked over their admin sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <changeover/status.h>

#include "cli/child.h"

namespace changeover::cli {

struct FleetOptions {
  std::string model;
  std::string endpoint;
  std::string mode;
  std::string folder;  // For sockets and logs.
  std::vector<std::string> engines;
  int32_t tp_size = 3;
};

// What a rank said last.
struct RankView {
  std::string engine;
  int32_t rank = 0;
  bool alive = false;      // The process runs.
  bool answered = false;   // ... and has answered since it started.
  bool connected = false;  // ... and is connected to the trainer.
  std::optional<int64_t> version;
  bool fenced = false;
  std::string fence_reason;
  bool serving = false;     // Steps run.
  std::string waiting_for;  // Why no step runs.
  uint64_t steps = 0;
  uint64_t steps_mixed = 0;
  std::optional<int64_t> steps_on;      // The version of the last step that began a new version.
  std::optional<double> pause_seconds;  // Around the last change from one version to another.
};

class Fleet {
 public:
  explicit Fleet(FleetOptions options);

  Status start(size_t index);
  void kill(size_t index);
  // Asks every living rank once.
  void look();

  const std::vector<RankView>& views() const { return views_; }
  size_t index_of(const std::string& engine, int32_t rank) const;
  std::string admin(size_t index) const;  // "unix:PATH"
  std::string log(size_t index) const;

 private:
  FleetOptions options_;
  std::vector<RankView> views_;
  std::vector<std::unique_ptr<Child>> children_;
};

// The table of all ranks, as many lines as there are ranks and one more.
std::string fleet_text(const std::vector<RankView>& views);

}  // namespace changeover::cli
