// A publisher in this process and ranks in others, with the bare limits between the same processes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <changeover/publisher.h>
#include <changeover/report.h>
#include <changeover/status.h>
#include <changeover/types.h>

#include "bench/limits.h"
#include "bench/model.h"
#include "bench/process.h"

namespace changeover::bench {

struct FleetOptions {
  bool tcp = false;
  int ranks = 1;
  bool one_engine = false;  // The ranks vote together; else each is an engine of its own.
  Mode mode = Mode::kInPlace;
  uint64_t bucket_bytes = 1ull << 30;
};

// Peak memory above what was resident when watching began.
struct MemoryUse {
  uint64_t publisher = 0;
  uint64_t rank = 0;  // The largest of them.
};

class Fleet {
 public:
  // The model must outlive the fleet. Forks: no thread may run.
  static Result<std::unique_ptr<Fleet>> start(const Model& model, const FleetOptions& options);
  // Two at once, to take turns.
  struct Two {
    std::unique_ptr<Fleet> first;
    std::unique_ptr<Fleet> second;
  };
  static Result<Two> start_two(const Model& first, const FleetOptions& first_options,
                               const Model& second, const FleetOptions& second_options);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // The next version, to every rank; ok only if all committed.
  Result<UpdateReport> publish(bool digests);
  // Seconds for the model's bytes to get from here into every rank's live memory, bare.
  Result<double> limit_seconds();
  // Seconds from the first yes to the last rank finished: a bare vote on socket pairs.
  Result<double> bare_vote_seconds();

  Status watch_memory();
  Result<MemoryUse> memory();

 private:
  struct Reply {
    uint64_t resident = 0;
    uint64_t peak = 0;
    double voted_seconds = 0;
    double finished_seconds = 0;
    uint64_t failed = 0;
  };
  Fleet(const Model& model, const FleetOptions& options);
  Status fork_ranks();
  Status open();
  int serve(int rank, int fd);
  Status tell(char command);
  Result<std::vector<Reply>> answers();
  // In a rank.
  Status obey(int rank, char command, std::span<std::byte> live, Reply& reply);
  Status vote_bare(int rank, Reply& reply) const;

  const Model& model_;
  const FleetOptions options_;
  std::vector<CopyRing> ring_;  // One, or none.
  std::vector<Loopback> loopback_;
  std::vector<int> vote_publisher_, vote_rank_;  // Socket pairs by rank.
  std::vector<std::unique_ptr<Partner>> ranks_;
  std::unique_ptr<Publisher> publisher_;
  int64_t version_ = 0;
  uint64_t resident_ = 0;
};

// First yes to last rank finished, of an update: as the ranks' own clocks saw it.
double vote_seconds(const UpdateReport& report);

}  // namespace changeover::bench
