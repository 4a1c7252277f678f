// The way of the bytes: frames checked before any of them is touched, runs cut at tensors and
// blocks, each block digested and written while it is in the cache.
#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "tensor/spec.h"
#include "update/transaction_impl.h"

namespace changeover::update {

Status TransactionImpl::on_frame(std::span<const FrameTensor> tensors) {
  if (!error_.ok()) {
    return error_;
  }
  if (state_ != State::kStreaming) {
    return fail({Code::kInvalidArgument, "a frame came outside a stream"});
  }
  if (at_ != frame_.size()) {
    return fail({Code::kCorrupt, "a frame came before the last byte of the one before it"});
  }
  frame_.clear();
  at_ = 0;
  position_ = 0;
  for (const FrameTensor& tensor : tensors) {
    Incoming incoming;
    if (Status status = take(tensor, incoming); !status.ok()) {
      frame_.clear();
      return fail(std::move(status));
    }
    frame_.push_back(incoming);
  }
  ++buckets_;
  std::sort(frame_.begin(), frame_.end(), [](const Incoming& a, const Incoming& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.nbytes < b.nbytes;
  });
  uint64_t end = 0;
  for (const Incoming& incoming : frame_) {
    if (incoming.offset < end) {
      return fail({Code::kCorrupt, base::quoted(incoming.spec->name) + " overlaps another tensor"});
    }
    end = incoming.offset + incoming.nbytes;
  }
  return apply(0, {});  // tensors without bytes at the front are complete now
}

Status TransactionImpl::take(const FrameTensor& tensor, Incoming& incoming) {
  const TensorSpec& spec = *tensor.spec;
  const TensorSlice slice = tensor.slice.value_or(TensorSlice{0, tensor.nbytes});
  incoming = {&spec, tensor.offset, tensor.nbytes, names_.match(spec.name)};
  incoming.first = slice.first;
  incoming.last = slice.first + tensor.nbytes == slice.total;
  incoming.xxh3 = tensor.xxh3;
  // A part's tensor may bring its digest with a later one.
  incoming.hashed = digests_on_ || tensor.slice || tensor.xxh3;
  if (incoming.first != 0) {
    return take_next_part(incoming);
  }
  switch (incoming.match.kind) {
    case model::NameMatch::Kind::kIgnorable:
      return {};
    case model::NameMatch::Kind::kUnmatched: {
      // Both sides' names: a prefix that no rule strips shows at once (case B17).
      const std::string wanted = ledger_.not_come();
      return {Code::kInvalidArgument,
              base::quoted(spec.name) + ": no piece of this rank's plan wants it and it is not " +
                  "declared as ignorable" +
                  (wanted.empty() ? "" : "; the plan still waits for " + wanted)};
    }
    case model::NameMatch::Kind::kSource:
      break;
  }
  const Source& source = sources_[incoming.match.source];
  if (spec.dtype != source.spec.dtype || spec.shape != source.spec.shape) {
    return {Code::kInvalidArgument,
            base::quoted(spec.name) + " came as " + tensor::describe(spec.dtype, spec.shape) +
                ", this rank's plan wants " +
                tensor::describe(source.spec.dtype, source.spec.shape) +
                ": send it so, or start the rank with the config.json (or plan) of this model"};
  }
  if (slice.total != source_bytes_[incoming.match.source]) {
    return {Code::kCorrupt, base::quoted(spec.name) + ": " + std::to_string(slice.total) +
                                " bytes came, it has " +
                                std::to_string(source_bytes_[incoming.match.source])};
  }
  CHANGEOVER_TRY_ASSIGN(incoming.wanted, ledger_.arrive(incoming.match, spec.name));
  incoming.hashed = incoming.hashed || !source.aliases.empty();
  return {};
}

Status TransactionImpl::take_next_part(Incoming& incoming) const {
  const model::NameMatch& match = incoming.match;
  if (incoming.first != split_.next || match.kind != split_.match.kind ||
      match.source != split_.match.source || match.name_index != split_.match.name_index) {
    return {Code::kCorrupt, base::quoted(incoming.spec->name) + ": its part from byte " +
                                std::to_string(incoming.first) + " is out of order (W6)"};
  }
  incoming.wanted = split_.wanted;
  return {};
}

Status TransactionImpl::apply(uint64_t payload_offset, std::span<const std::byte> bytes) {
  if (!error_.ok()) {
    return error_;
  }
  if (state_ != State::kStreaming || payload_offset != position_) {
    return fail({Code::kCorrupt, "payload bytes came for offset " + std::to_string(payload_offset) +
                                     ", expected were those at " + std::to_string(position_)});
  }
  const uint64_t end = position_ + bytes.size();
  bytes_received_ += bytes.size();
  while (at_ < frame_.size()) {
    const Incoming& tensor = frame_[at_];
    const uint64_t begin = std::max(position_, tensor.offset);
    const uint64_t tensor_end = tensor.offset + tensor.nbytes;
    if (begin > end || (begin == end && begin < tensor_end)) {
      break;
    }
    const uint64_t stop = std::min(end, tensor_end);
    if (begin == tensor.offset && tensor.first == 0 && tensor.nbytes != 0) {
      start_tensor(tensor);
    }
    const auto part = bytes.subspan(begin - payload_offset, stop - begin);
    if (Status status = feed(tensor, tensor.first + (begin - tensor.offset), part); !status.ok()) {
      return fail(std::move(status));
    }
    position_ = stop;
    if (stop < tensor_end) {
      break;
    }
    if (Status status = complete(tensor); !status.ok()) {
      return fail(std::move(status));
    }
    ++at_;
  }
  position_ = end;
  return {};
}

void TransactionImpl::start_tensor(const Incoming& incoming) {
  hasher_.reset();
  applier_.start_tensor(static_cast<uint32_t>(std::max(1, dtype_bytes(incoming.spec->dtype))));
}

Status TransactionImpl::feed(const Incoming& incoming, uint64_t begin,
                             std::span<const std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    const auto block = bytes.subspan(at, std::min(kBlockBytes, bytes.size() - at));
    if (incoming.hashed) {
      hasher_.update(block);
    }
    if (incoming.wanted) {
      CHANGEOVER_TRY(write_block(incoming, begin + at, block));
    }
  }
  return {};
}

Status TransactionImpl::write_block(const Incoming& incoming, uint64_t begin,
                                    std::span<const std::byte> block) {
  for (uint32_t piece : ledger_.pieces_of(incoming.match.source)) {
    if (!applier_.touches(piece, begin, block.size())) {
      continue;
    }
    if (landing_.writes_live()) {
      if (!raised_) {
        CHANGEOVER_TRY(raise(FenceReason::kReceiving));
      }
      wrote_ = true;
    }
    landing_.before_write(piece);
    ledger_.land(piece, applier_.write(piece, begin, block));
  }
  applier_.end_run(block);
  return {};
}

Status TransactionImpl::complete(const Incoming& incoming) {
  if (!incoming.last) {
    split_ = {incoming.match, incoming.wanted, incoming.first + incoming.nbytes};
    return {};
  }
  if (incoming.first != 0) {
    split_ = {};
  }
  // A tensor without bytes leaves the hasher alone: it may stand before a tensor's next part.
  const Digest digest = !incoming.hashed       ? Digest{}
                        : incoming.nbytes == 0 ? base::digest({})
                                               : hasher_.finish();
  if (incoming.xxh3 && *incoming.xxh3 != digest) {
    return {Code::kCorrupt, "tensor " + base::quoted(incoming.spec->name) +
                                ": its bytes have digest " + digest.to_text() + ", its xxh3 says " +
                                incoming.xxh3->to_text() +
                                ": bytes were damaged, or the source moved (W6)"};
  }
  if (digests_on_) {
    digester_.add(*incoming.spec, digest);
  }
  if (incoming.match.kind != model::NameMatch::Kind::kSource) {
    return {};
  }
  return incoming.wanted ? ledger_.complete(incoming.match.source, incoming.spec->name, digest)
                         : ledger_.compare(incoming.match.source, incoming.spec->name, digest);
}

Status TransactionImpl::end_of_stream() {
  if (!error_.ok()) {
    return error_;
  }
  if (state_ != State::kStreaming || at_ != frame_.size() || split_.next != 0) {
    return fail({Code::kCorrupt, "the stream ended before the last byte of a frame or tensor"});
  }
  state_ = State::kEnded;
  return {};
}

Status TransactionImpl::reload_tensor(std::string_view source_name, const TensorView& view) {
  if (!reload_open_) {
    return {Code::kInvalidArgument, "no reload is open"};
  }
  if (!error_.ok()) {
    return error_;
  }
  auto packer = tensor::Packer::open(view);
  if (!packer.ok()) {
    return fail(packer.status().with_context(base::quoted(source_name)));
  }
  const TensorSpec spec{std::string(source_name), view.dtype, view.shape};
  Incoming incoming;
  if (Status status = take({&spec, 0, packer->bytes()}, incoming); !status.ok()) {
    return fail(std::move(status));
  }
  start_tensor(incoming);
  reload_buffer_.resize(kBlockBytes);
  for (uint64_t at = 0; at < packer->bytes(); at += kBlockBytes) {
    const std::span<std::byte> block(reload_buffer_.data(),
                                     std::min<uint64_t>(kBlockBytes, packer->bytes() - at));
    packer->pack(at, block);
    if (Status status = feed(incoming, at, block); !status.ok()) {
      return fail(std::move(status));
    }
  }
  reload_wrote_ = reload_wrote_ || incoming.wanted;
  if (Status status = complete(incoming); !status.ok()) {
    return fail(std::move(status));
  }
  return {};
}

}  // namespace changeover::update
