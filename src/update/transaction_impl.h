// The one implementation of Transaction: transaction.cc holds an update's and a reload's life,
// transaction_stream.cc the way of the bytes.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "model/names.h"
#include "tensor/version_digest.h"
#include "update/applier.h"
#include "update/landing.h"
#include "update/ledger.h"
#include "update/transaction.h"

namespace changeover::update {

class TransactionImpl final : public Transaction {
 public:
  TransactionImpl(const LoadPlan& plan, std::span<const LiveParameter> parameters,
                  model::NameResolver names, Applier applier, FenceState& fence,
                  FenceRaiser& raiser, const TransactionOptions& options);

  BeginOutcome begin(VersionStamp version, std::optional<Digest> digest, bool digests_on) override;
  Status on_frame(std::span<const FrameTensor> tensors) override;
  Status apply(uint64_t payload_offset, std::span<const std::byte> bytes) override;
  Status end_of_stream() override;
  Status check(std::optional<Digest> source) override;
  Status prepare(std::optional<Digest> source) override;
  void finish() override;
  void abort(const Status& why, bool keep_gate_shut) override;

  Status begin_reload(std::optional<VersionStamp> version) override;
  Status reload_tensor(std::string_view source_name, const TensorView& tensor) override;
  Status finish_reload() override;
  void drop_reload() override { reload_open_ = false; }

  Status replan(const LoadPlan& plan, std::span<const LiveParameter> parameters) override;

  bool is_open() const override { return state_ != State::kIdle; }
  bool prepared() const override { return state_ == State::kPrepared; }
  bool serves_on() const override { return options_.mode == Mode::kStaged && fence_.open(); }
  bool wrote() const override { return wrote_; }
  std::optional<VersionStamp> version() const override { return version_; }
  std::optional<Digest> digest() const override { return digest_; }
  std::optional<Digest> received_digest() const override { return received_digest_; }
  VersionStamp target() const override { return target_; }
  RankReport report() const override;

 private:
  enum class State : uint8_t { kIdle, kStreaming, kEnded, kChecked, kPrepared };
  // A tensor on its way in.
  struct Incoming {
    const TensorSpec* spec = nullptr;
    uint64_t offset = 0;
    uint64_t nbytes = 0;
    model::NameMatch match;
    bool wanted = false;  // its bytes go into parameters
    bool hashed = false;
    uint64_t first = 0;  // the tensor's byte at `offset`; not 0 = a part that follows another
    bool last = true;    // no part follows
    std::optional<Digest> xxh3 = std::nullopt;
  };
  // The tensor whose next part comes in the next frame (rule W6).
  struct Split {
    model::NameMatch match;
    bool wanted = false;
    uint64_t next = 0;  // its next byte; 0 = there is none
  };
  // Bytes are digested and written this many at a time, so that they are read from memory once.
  static constexpr size_t kBlockBytes = 64 << 10;

  void take_sources(const LoadPlan& plan);
  std::optional<Status> refusal(VersionStamp version) const;
  BeginOutcome begin_same(const std::optional<Digest>& digest, bool digests_on) const;
  void start(VersionStamp version);
  Status fail(Status status);
  Status raise(FenceReason reason);
  void rest(FenceReason reason);

  Status take(const FrameTensor& tensor, Incoming& incoming);
  Status take_next_part(Incoming& incoming) const;
  void start_tensor(const Incoming& incoming);
  Status feed(const Incoming& incoming, uint64_t begin, std::span<const std::byte> bytes);
  Status write_block(const Incoming& incoming, uint64_t begin, std::span<const std::byte> block);
  Status complete(const Incoming& incoming);
  Status check_digest(const std::optional<Digest>& source);

  const TransactionOptions options_;
  std::vector<Source> sources_;
  std::vector<uint64_t> source_bytes_;
  model::NameResolver names_;
  Applier applier_;
  Landing landing_;
  Ledger ledger_;
  FenceState& fence_;
  FenceRaiser& raiser_;
  base::Hasher hasher_;
  tensor::VersionDigester digester_;

  // Of the rank.
  std::optional<VersionStamp> version_;
  std::optional<Digest> digest_;
  std::optional<VersionStamp> newest_;  // ever committed here; what version_ was before it was lost
  std::optional<Digest> newest_digest_;
  FenceReason resting_ = FenceReason::kNoVersion;  // why the fence is up between updates, if it is
  std::optional<VersionStamp> resting_about_;

  // Of the update (or the last one).
  State state_ = State::kIdle;
  VersionStamp target_{};
  std::optional<Digest> expected_digest_;
  std::optional<Digest> received_digest_;
  bool digests_on_ = true;
  bool raised_ = false;
  bool wrote_ = false;
  bool digest_checked_ = false;
  uint64_t bytes_received_ = 0;
  uint64_t buckets_ = 0;
  std::optional<VersionStamp> version_before_;
  RankOutcome outcome_ = RankOutcome::kFenced;
  Status error_;

  // Of the frame.
  std::vector<Incoming> frame_;
  size_t at_ = 0;  // the tensor whose bytes come next
  uint64_t position_ = 0;
  Split split_;

  // Of the reload.
  bool reload_open_ = false;
  bool reload_counting_ = false;
  bool reload_wrote_ = false;
  std::optional<VersionStamp> reload_version_;
  std::vector<std::byte> reload_buffer_;
};

}  // namespace changeover::update
