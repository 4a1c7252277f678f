// Live parameters of one rank, and the fence that keeps readers from a mix of two versions.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover {

// One parameter's memory. The address does not change while the store lives; which half is live
// changes in `swap` alone (rule T13).
struct LiveParameter {
  TensorSpec spec;
  std::byte* data = nullptr;  // C-contiguous, byte_count(spec) bytes, 64-byte aligned when ours.
};

// Where the parameters live. Either whole page-aligned memfd mappings that the store owns, can
// lend to another process and can replace in place (a fresh mapping at the same address), or
// memory that an engine hands in and keeps alive.
//
// Thread rules: parameter addresses may be read from any thread; lend and replace from one thread
// at a time, with no update open.
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  // Allocates all parameters of the plan, zeroed (padding stays zero). kExhausted with the numbers
  // (asked for, MemAvailable, the cgroup's limit) before anything is mapped.
  static Result<std::unique_ptr<ParameterStore>> allocate(const LoadPlan& plan);

  // Adopts the engine's own memory: one entry per parameter of the plan, same names, dtypes and
  // shapes in any order; kInvalidArgument names the first that differs.
  static Result<std::unique_ptr<ParameterStore>> adopt(const LoadPlan& plan,
                                                       std::vector<LiveParameter> parameters);

  // In the plan's order. The live ones, but for `swap`, where half(guard.half()) are a guard's.
  std::span<const LiveParameter> parameters() const { return half(0); }
  virtual std::span<const LiveParameter> half(uint32_t index) const = 0;  // Empty if there is none.
  // Makes half(1), a second copy in memory of the store's own, which stays until the store goes:
  // for modes `staged` and `swap`, by Subscriber::open. kExhausted with the numbers before anything
  // is mapped. Does nothing if it is there.
  virtual Status add_half() = 0;

  // A region is a whole mapping that a half lives in; its id is the half's index. Adopted memory
  // is none.
  struct Region {
    uint32_t id = 0;
    uint64_t generation = 0;  // Grows with every replace.
    size_t bytes = 0;
    std::byte* address = nullptr;
  };
  virtual std::span<const Region> regions() const = 0;
  // A file descriptor of the region's memory for another process; the caller owns it.
  virtual Result<int> lend(uint32_t region) = 0;
  // A fresh mapping with the same content at the same address; whoever holds a descriptor lent
  // before writes where nobody looks. Readers may run meanwhile.
  virtual Status replace(uint32_t region) = 0;
};

// XXH3-128 over each parameter's bytes, in the plan's order: what `changeover verify` compares with
// a cold load. `half`: a guard's, or Fence::half().
std::vector<Digest> live_digests(const ParameterStore& store, uint32_t half = 0);
Digest live_digest(const LiveParameter& parameter);

// Builds the same rank's parameters from a checkpoint, outside any update ("cold load"): the
// reference every update is held to. Fails as an update would (missing, unwanted, wrong dtype).
class Checkpoint;
Result<std::unique_ptr<ParameterStore>> cold_load(const LoadPlan& plan, Checkpoint& checkpoint);

}  // namespace changeover
