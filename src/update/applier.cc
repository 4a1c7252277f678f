#include "update/applier.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "quant/cast.h"
#include "tensor/spec.h"

namespace changeover::update {

namespace {

Status check_op(const Source& source, const TensorSpec& parameter, const Piece& piece) {
  const DType from = source.spec.dtype;
  const DType to = parameter.dtype;
  if (piece.op == PieceOp::kCopy ? from == to : quant::can_cast(from, to)) {
    return {};
  }
  return {Code::kInvalidArgument,
          "parameter " + base::quoted(parameter.name) + " is " + std::string(dtype_name(to)) +
              " and its source " + base::quoted(source.spec.name) + " " +
              std::string(dtype_name(from)) +
              (piece.op == PieceOp::kCopy ? ": declare a cast in the plan, or send it as it is held"
                                          : ": there is no cast between the two")};
}

}  // namespace

Result<Applier> Applier::make(const LoadPlan& plan, std::span<const LiveParameter> parameters) {
  Applier applier;
  applier.entries_.reserve(plan.pieces.size());
  for (const Piece& piece : plan.pieces) {
    const Source& source = plan.sources[piece.source];
    const LiveParameter& live = parameters[piece.parameter];
    CHANGEOVER_TRY(check_op(source, live.spec, piece));
    const int bytes = dtype_bytes(live.spec.dtype);
    if (bytes == 0) {
      return Status(Code::kInvalidArgument, "parameter " + base::quoted(live.spec.name) +
                                                " has elements of less than a " +
                                                "byte: hold it packed, as uint8");
    }
    auto compiled = tensor::CompiledPiece::compile(piece.source_view, piece.target_view,
                                                   static_cast<uint32_t>(bytes));
    if (!compiled.ok()) {
      return compiled.status().with_context("parameter " + base::quoted(live.spec.name) +
                                            (piece.part.empty() ? "" : ", part " + piece.part));
    }
    applier.entries_.push_back({std::move(compiled).take(), live.data, piece.parameter,
                                source.spec.dtype != live.spec.dtype, source.spec.dtype,
                                live.spec.dtype});
  }
  return applier;
}

std::vector<uint64_t> Applier::piece_bytes() const {
  std::vector<uint64_t> bytes;
  for (const Entry& entry : entries_) {
    bytes.push_back(entry.piece.bytes());
  }
  return bytes;
}

std::vector<Journal::Slot> Applier::journal_slots() const {
  std::vector<Journal::Slot> slots;
  for (const Entry& entry : entries_) {
    slots.push_back({&entry.piece, entry.target});
  }
  return slots;
}

void Applier::set_target(std::span<const LiveParameter> parameters) {
  for (Entry& entry : entries_) {
    entry.target = parameters[entry.parameter].data;
  }
}

void Applier::start_tensor(uint32_t item_bytes) {
  carry_bytes_ = 0;
  item_bytes_ = item_bytes;
}

bool Applier::touches(uint32_t piece, uint64_t begin, uint64_t bytes) const {
  const Entry& entry = entries_[piece];
  uint64_t first = entry.piece.source_begin();
  uint64_t last = entry.piece.source_end();
  if (entry.cast) {
    const auto target_item = static_cast<uint64_t>(dtype_bytes(entry.target_dtype));
    first = first / target_item * item_bytes_;
    last = last / target_item * item_bytes_;
  }
  return first < last && begin < last && begin + bytes > first;
}

uint64_t Applier::write(uint32_t piece, uint64_t begin, std::span<const std::byte> run) {
  const Entry& entry = entries_[piece];
  if (!entry.cast) {
    return entry.piece.apply(begin, run, entry.target);
  }
  uint64_t written = 0;
  uint64_t used = 0;
  if (carry_bytes_ != 0) {
    used = std::min<uint64_t>(item_bytes_ - carry_bytes_, run.size());
    if (carry_bytes_ + used < item_bytes_) {
      return 0;
    }
    std::array<std::byte, 8> element = carry_;
    std::memcpy(element.data() + carry_bytes_, run.data(), used);
    written += cast_elements(entry, (begin - carry_bytes_) / item_bytes_, element.data(), 1);
  }
  const uint64_t whole = (run.size() - used) / item_bytes_;
  return written + cast_elements(entry, (begin + used) / item_bytes_, run.data() + used, whole);
}

uint64_t Applier::cast_elements(const Entry& entry, uint64_t first, const std::byte* elements,
                                uint64_t count) {
  const auto target_item = static_cast<uint64_t>(dtype_bytes(entry.target_dtype));
  // Only what the piece wants: a rank's share of a large tensor is small.
  const uint64_t low = std::max(first, entry.piece.source_begin() / target_item);
  const uint64_t high = std::min(first + count, entry.piece.source_end() / target_item);
  uint64_t written = 0;
  for (uint64_t at = low; at < high; at += kCastElements) {
    const uint64_t chunk = std::min<uint64_t>(kCastElements, high - at);
    quant::cast(entry.source_dtype, elements + (at - first) * item_bytes_, entry.target_dtype,
                cast_buffer_->data(), chunk);
    written += entry.piece.apply(at * target_item, {cast_buffer_->data(), chunk * target_item},
                                 entry.target);
  }
  return written;
}

void Applier::end_run(std::span<const std::byte> run) {
  const uint64_t total = carry_bytes_ + run.size();
  const auto rest = static_cast<uint32_t>(total % item_bytes_);
  if (total < item_bytes_) {
    std::memcpy(carry_.data() + carry_bytes_, run.data(), run.size());
  } else if (rest != 0) {
    std::memcpy(carry_.data(), run.data() + run.size() - rest, rest);
  }
  carry_bytes_ = rest;
}

}  // namespace changeover::update
