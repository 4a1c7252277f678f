// A small model with every kind of piece, and a slow, obvious loader of it to compare with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/parameter_store.h>

#include "base/digest.h"
#include "base/prng.h"
#include "quant/cast.h"
#include "tensor/version_digest.h"
#include "update/transaction.h"

namespace changeover::update {

// Tests that look at the version alone.
inline bool operator==(const FenceState::Pin& pin, const VersionStamp& version) {
  return pin.version == version;
}

}  // namespace changeover::update

namespace changeover::update::testing {

inline constexpr Mode kAllModes[] = {Mode::kInPlace, Mode::kJournal, Mode::kStaged, Mode::kSwap};

inline View box(int64_t offset, std::vector<View::Dim> dims) {
  return {offset, std::move(dims)};
}

// Two layers, TP 2: qkv fused of three row shards, o a column shard, a tied head, a norm that is
// cast, a scalar, an empty tensor. All extents differ, so that nothing is right by luck.
inline LoadPlan toy_plan(int32_t tp_rank = 0) {
  LoadPlan plan;
  plan.tp_rank = tp_rank;
  plan.tp_size = 2;
  plan.architecture = "Toy";
  plan.ignorable = {"*.inv_freq"};
  auto add = [&](const std::string& parameter, DType dtype, std::vector<int64_t> shape) {
    plan.parameters.push_back({parameter, dtype, std::move(shape)});
    return static_cast<uint32_t>(plan.parameters.size() - 1);
  };
  auto source = [&](const std::string& name, DType dtype, std::vector<int64_t> shape,
                    std::vector<std::string> aliases = {}) {
    plan.sources.push_back({{name, dtype, std::move(shape)}, std::move(aliases)});
    return static_cast<uint32_t>(plan.sources.size() - 1);
  };
  const int64_t r = tp_rank;
  const uint32_t embed = add("embed", DType::kBF16, {7, 5});
  plan.pieces.push_back({source("embed.weight", DType::kBF16, {14, 5}, {"lm_head.weight"}), embed,
                         box(r * 35, {{7, 5}, {5, 1}}), box(0, {{7, 5}, {5, 1}}), PieceOp::kCopy,
                         ""});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    const uint32_t qkv = add(name + "qkv_proj", DType::kBF16, {7, 5});
    int64_t row = 0;
    for (const auto& [part, rows] : {std::pair<const char*, int64_t>{"q", 3}, {"k", 2}, {"v", 2}}) {
      plan.pieces.push_back({source(name + part + ".weight", DType::kBF16, {2 * rows, 5}), qkv,
                             box(r * rows * 5, {{rows, 5}, {5, 1}}),
                             box(row * 5, {{rows, 5}, {5, 1}}), PieceOp::kCopy, part});
      row += rows;
    }
    const uint32_t o = add(name + "o_proj", DType::kBF16, {5, 3});
    plan.pieces.push_back({source(name + "o.weight", DType::kBF16, {5, 6}), o,
                           box(r * 3, {{5, 6}, {3, 1}}), box(0, {{5, 3}, {3, 1}}), PieceOp::kCopy,
                           ""});
  }
  const uint32_t norm = add("norm", DType::kBF16, {6});
  plan.pieces.push_back({source("norm.weight", DType::kF32, {6}), norm, box(0, {{6, 1}}),
                         box(0, {{6, 1}}), PieceOp::kCast, ""});
  const uint32_t scale = add("scale", DType::kF32, {});
  plan.pieces.push_back(
      {source("scale", DType::kF32, {}), scale, box(0, {}), box(0, {}), PieceOp::kCopy, ""});
  const uint32_t empty = add("empty", DType::kF16, {0, 4});
  plan.pieces.push_back({source("empty", DType::kF16, {0, 4}), empty, box(0, {{0, 4}, {4, 1}}),
                         box(0, {{0, 4}, {4, 1}}), PieceOp::kCopy, ""});
  return plan;
}

using Weights = std::map<std::string, std::vector<std::byte>>;

// Content of every source for a version, from a seed.
inline Weights toy_weights(const LoadPlan& plan, uint64_t seed) {
  Weights weights;
  for (const Source& source : plan.sources) {
    std::vector<std::byte> bytes(
        static_cast<size_t>(*byte_count(source.spec.dtype, source.spec.shape)));
    base::Prng(seed * 1000 + weights.size()).fill(bytes);
    weights[source.spec.name] = std::move(bytes);
  }
  return weights;
}

inline void each_element(const View& view, size_t dim, int64_t at, std::vector<int64_t>& out) {
  if (dim == view.dims.size()) {
    out.push_back(at);
    return;
  }
  for (int64_t i = 0; i < view.dims[dim].extent; ++i) {
    each_element(view, dim + 1, at + i * view.dims[dim].stride, out);
  }
}

// A rank's live memory, whole parameters one after another in their own buffers.
class Memory {
 public:
  explicit Memory(const LoadPlan& plan) {
    for (const TensorSpec& spec : plan.parameters) {
      buffers_.emplace_back(static_cast<size_t>(*byte_count(spec.dtype, spec.shape)));
      live_.push_back({spec, buffers_.back().data()});
    }
  }
  std::span<const LiveParameter> parameters() const { return live_; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const auto& buffer : buffers_) {
      all.insert(all.end(), buffer.begin(), buffer.end());
    }
    return all;
  }

  // Element by element, straight from the plan's definition.
  void cold_load(const LoadPlan& plan, const Weights& weights) {
    for (const Piece& piece : plan.pieces) {
      const TensorSpec& from = plan.sources[piece.source].spec;
      const TensorSpec& to = plan.parameters[piece.parameter];
      std::vector<int64_t> source;
      std::vector<int64_t> target;
      each_element(piece.source_view, 0, piece.source_view.offset, source);
      each_element(piece.target_view, 0, piece.target_view.offset, target);
      for (size_t i = 0; i < source.size(); ++i) {
        const std::byte* in = weights.at(from.name).data() + source[i] * dtype_bytes(from.dtype);
        std::byte* out = buffers_[piece.parameter].data() + target[i] * dtype_bytes(to.dtype);
        if (piece.op == PieceOp::kCast) {
          quant::cast(from.dtype, in, to.dtype, out, 1);
        } else {
          std::memcpy(out, in, static_cast<size_t>(dtype_bytes(to.dtype)));
        }
      }
    }
  }

 private:
  std::deque<std::vector<std::byte>> buffers_;
  std::vector<LiveParameter> live_;
};

// Raises at once unless told that a reader stays inside.
class InstantRaiser final : public FenceRaiser {
 public:
  explicit InstantRaiser(FenceState& fence) : fence_(fence) {}
  Status raise_and_drain(FenceReason reason, VersionStamp about) override {
    ++raises;
    const bool was_up = fence_.up();
    if (fence_.raise(reason, about) != 0) {
      if (!was_up) {
        fence_.lower();
      }
      return {Code::kDeadline, "waited 60 s for 1 reader to leave"};
    }
    return {};
  }
  Status reclaim(uint32_t half) override {
    if (const uint32_t inside = fence_.retire(half); inside != 0) {
      fence_.keep(half);
      return {Code::kDeadline, "waited 2 s for " + std::to_string(inside) + " guard(s)"};
    }
    return {};
  }
  int raises = 0;

 private:
  FenceState& fence_;
};

// One rank: plan, memory, fence, transaction.
struct ToyRank {
  explicit ToyRank(Mode mode = Mode::kJournal, LoadPlan of = toy_plan())
      : plan(std::move(of)),
        memory(plan),
        second(plan),
        raiser(fence),
        journal(*journal_bytes(plan)) {
    TransactionOptions options;
    options.rank = {"engine-a", plan.tp_rank};
    options.mode = mode;
    options.journal = journal;
    options.second = second.parameters();
    transaction =
        std::move(Transaction::make(plan, memory.parameters(), fence, raiser, options)).take();
  }
  // What a reader that comes now reads.
  std::vector<std::byte> live() const { return half(fence.half()); }
  std::vector<std::byte> half(uint32_t index) const {
    return (index == 0 ? memory : second).bytes();
  }
  std::vector<std::byte> cold(const Weights& weights) const {
    Memory other(plan);
    other.cold_load(plan, weights);
    return other.bytes();
  }

  LoadPlan plan;
  Memory memory;
  Memory second;
  FenceState fence;
  InstantRaiser raiser;
  std::vector<std::byte> journal;
  std::unique_ptr<Transaction> transaction;
};

// A tensor as it is sent.
struct Sent {
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

inline std::vector<Sent> all_tensors(const LoadPlan& plan, const Weights& weights) {
  std::vector<Sent> all;
  for (const Source& source : plan.sources) {
    all.push_back({source.spec, weights.at(source.spec.name)});
  }
  return all;
}

inline Digest version_digest(std::span<const Sent> tensors) {
  tensor::VersionDigester digester;
  for (const Sent& sent : tensors) {
    digester.add(sent.spec, base::digest(sent.bytes));
  }
  return digester.finish();
}

// Sends tensors [first, first + count) as one frame, its payload cut into runs of `run_bytes`.
inline Status send_frame(Transaction& transaction, std::span<const Sent> tensors,
                         size_t run_bytes) {
  std::vector<FrameTensor> frame;
  std::vector<std::byte> payload;
  for (const Sent& sent : tensors) {
    frame.push_back({&sent.spec, payload.size(), sent.bytes.size()});
    payload.insert(payload.end(), sent.bytes.begin(), sent.bytes.end());
  }
  CHANGEOVER_TRY(transaction.on_frame(frame));
  for (size_t at = 0; at < payload.size(); at += run_bytes) {
    const size_t bytes = std::min(run_bytes, payload.size() - at);
    CHANGEOVER_TRY(transaction.apply(at, std::span<const std::byte>(payload).subspan(at, bytes)));
  }
  return {};
}

// All tensors in frames of `per_frame`, then END.
inline Status send_all(Transaction& transaction, std::span<const Sent> tensors,
                       size_t per_frame = 3, size_t run_bytes = 17) {
  for (size_t at = 0; at < tensors.size(); at += per_frame) {
    const size_t count = std::min(per_frame, tensors.size() - at);
    CHANGEOVER_TRY(send_frame(transaction, tensors.subspan(at, count), run_bytes));
  }
  return transaction.end_of_stream();
}

// A whole update from begin to finish.
inline Status update(ToyRank& rank, VersionStamp version, const Weights& weights,
                     size_t per_frame = 3, size_t run_bytes = 17) {
  const auto tensors = all_tensors(rank.plan, weights);
  const BeginOutcome begun = rank.transaction->begin(version, std::nullopt, true);
  CHANGEOVER_TRY(begun.why);
  CHANGEOVER_TRY(send_all(*rank.transaction, tensors, per_frame, run_bytes));
  CHANGEOVER_TRY(rank.transaction->prepare(version_digest(tensors)));
  rank.transaction->finish();
  rank.fence.open_gate();
  return {};
}

}  // namespace changeover::update::testing
