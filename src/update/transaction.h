// One rank's side of an update: from begin to commit or abort, over live memory (rules T1-T12).
//
//   begin -> on_frame, apply... (many) -> end_of_stream -> check, prepare -> finish | abort
//
// One for all modes: where bytes go and how they become live is landing.h's.
// The object lives as long as the rank and takes one update after another. One thread at a time.
// It never waits (FenceRaiser may) and allocates nothing per tensor once the first update has run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <changeover/load_plan.h>
#include <changeover/parameter_store.h>
#include <changeover/report.h>
#include <changeover/status.h>
#include <changeover/tensor.h>
#include <changeover/types.h>
#include <changeover/wire_extensions.h>

#include "update/bulk_copier.h"
#include "update/fence.h"

namespace changeover::update {

// A tensor of the current frame and where its bytes lie in the payload. `spec` must stay as it is
// until the frame's last byte was applied.
struct FrameTensor {
  const TensorSpec* spec = nullptr;
  uint64_t offset = 0;
  uint64_t nbytes = 0;  // of this part, where there is a slice
  // Rule W6: a part of the tensor; the next frame has the next one, at offset 0.
  std::optional<TensorSlice> slice = std::nullopt;
  std::optional<Digest> xxh3 = std::nullopt;  // what the whole tensor's bytes must digest to
};

struct TransactionOptions {
  RankName rank;
  Incarnation incarnation;
  Mode mode = Mode::kJournal;
  // Waits until the writes of this update are really in the parameters and returns what went wrong
  // with them; called within prepare(), so that a late fault aborts (rule R5). Host memory needs
  // none.
  std::function<Status()> synchronize;
  // kJournal: at least journal_bytes(plan) of host memory, kept by the caller.
  std::span<std::byte> journal;
  // kStaged, kSwap: a second copy of the parameters, as a ParameterStore's half(1), kept by the
  // caller; its content is of no interest, but for padding, which is taken to be in order.
  std::span<const LiveParameter> second;
  // kStaged: who copies the second half into live memory; null = finish() itself, on one thread.
  BulkCopier* copier = nullptr;
};

// Bytes of host memory that kJournal needs for this plan: all parameters of the rank once.
Result<uint64_t> journal_bytes(const LoadPlan& plan);

enum class BeginKind : uint8_t { kReady, kRefused, kAlreadyThere, kNeedDigest };

struct BeginOutcome {
  BeginKind kind = BeginKind::kRefused;
  Status why;  // not ok only for kRefused
};

class Transaction {
 public:
  // `plan` is compiled once and need not outlive the call; `parameters` (in the plan's order, as a
  // ParameterStore gives them), `fence` and `raiser` must outlive the transaction. kInvalidArgument
  // for a plan that is not proved or does not fit the parameters, live or second; kRefused naming
  // derived values, which are not there.
  static Result<std::unique_ptr<Transaction>> make(const LoadPlan& plan,
                                                   std::span<const LiveParameter> parameters,
                                                   FenceState& fence, FenceRaiser& raiser,
                                                   const TransactionOptions& options);
  virtual ~Transaction() = default;

  // Opens an update (rules T1-T3). Anything but kReady changes nothing. kSwap: waits for guards of
  // the half that the update before made old.
  virtual BeginOutcome begin(VersionStamp version, std::optional<Digest> digest,
                             bool digests_on) = 0;

  // A frame's tensors, before any byte of it: names resolved, dtypes, shapes, doubles and unwanted
  // tensors checked; nothing is written. After an error the update can only be aborted; further
  // calls return the same error.
  virtual Status on_frame(std::span<const FrameTensor> tensors) = 0;
  // The frame's payload bytes from `payload_offset`, in order and without gaps. The first one that
  // has a taker raises the fence before it writes into live memory (rule T7).
  virtual Status apply(uint64_t payload_offset, std::span<const std::byte> bytes) = 0;
  virtual Status end_of_stream() = 0;
  // What can fail and needs no fence (rule T10): coverage of every parameter (T5), the version
  // digest where digests are on and `source` has one (U2), the device. In kStaged and kSwap the
  // engine serves on meanwhile.
  virtual Status check(std::optional<Digest> source) = 0;
  // All that can fail: check(), if it was not done, and the fence. Ok = this rank can finish; the
  // fence is up, and but for kSwap nobody is inside.
  virtual Status prepare(std::optional<Digest> source) = 0;
  // REQUIRES: prepare() was ok. Shuts the step gate, makes the new weights the live ones, publishes
  // the version with them, lowers the fence (rules T10, T11, V6).
  virtual void finish() = 0;
  // Ends the update (rule T8): kJournal restores the old bytes, kStaged and kSwap have nothing to
  // restore, and the fence falls; kInPlace stays fenced if a byte was written. Idempotent; no
  // effect when nothing is open.
  // `keep_gate_shut`: peers may have finished (rule V5), so steps wait for a release.
  virtual void abort(const Status& why, bool keep_gate_shut) = 0;

  // A reload outside any update, counted by the same ledger (rule T9): raises the fence, takes
  // whole source tensors, and lifts the fence in finish_reload() only if every parameter was
  // rewritten since it went up, over one reload or several of one declared version. The step gate
  // is shut by then: other ranks of the engine may hold another version (rule V6).
  virtual Status begin_reload(std::optional<VersionStamp> version) = 0;
  virtual Status reload_tensor(std::string_view source_name, const TensorView& tensor) = 0;
  // Ok and the fence down when complete; kRefused naming what is missing, the fence still up.
  virtual Status finish_reload() = 0;
  // Ends a reload that nobody will finish; the fence stays up, what was written counts as it would
  // after a finish_reload() that found something missing. No effect when none is open.
  virtual void drop_reload() = 0;

  // The engine's layout moved (rule T15): from now on updates fill the same parameters by `plan`.
  // Version and fence stay; a reload that was counting starts over. kRefused while an update or a
  // reload is open, kInvalidArgument as make() says; then nothing changes.
  virtual Status replan(const LoadPlan& plan, std::span<const LiveParameter> parameters) = 0;

  virtual bool is_open() const = 0;  // between begin and finish/abort
  virtual bool prepared() const = 0;
  // prepare() has yet to raise the fence over an engine that may be serving: when it does is the
  // engine's to say (rule V6).
  virtual bool serves_on() const = 0;
  virtual bool wrote() const = 0;  // the open update (or the last one) wrote into live memory
  virtual std::optional<VersionStamp> version() const = 0;    // committed and whole
  virtual std::optional<Digest> digest() const = 0;           // of version(), where known
  virtual std::optional<Digest> received_digest() const = 0;  // of the open update, after prepare
  virtual VersionStamp target() const = 0;  // of the open update (or the last one)
  // Of the open update, or of the last one: identity, versions, pieces, bytes, buckets, outcome,
  // fence, error. Seconds, road and cache fields are the caller's.
  virtual RankReport report() const = 0;
};

}  // namespace changeover::update
