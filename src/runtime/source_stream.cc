#include "runtime/source_stream.h"

#include <algorithm>
#include <utility>

#include "runtime/callback.h"
#include "runtime/stream_part.h"
#include "tensor/copy.h"
#include "tensor/spec.h"

namespace changeover::runtime {
namespace {

// Small enough that a block is still in the cache when it is digested after its copy.
constexpr uint64_t kBlockBytes = 128u << 10;
// What one send() takes from contiguous memory.
constexpr uint64_t kSendBytes = 1u << 20;

}  // namespace

Status wait_until_ready(const PublishOptions& options) {
  if (std::holds_alternative<std::monostate>(options.ready)) {
    return {Code::kInvalidArgument,
            "PublishOptions::ready is not set: give ReadyNow{} or the event after which the source "
            "may be read (rule U1)"};
  }
  if (const auto* ready = std::get_if<ReadyEvent>(&options.ready)) {
    return call("the ready event", [&] { return (*ready)(options.ranks_timeout); })
        .with_context("the source is not ready (rule U1)");
  }
  return {};
}

Result<SourceLease> SourceLease::take(TensorSource& source) {
  CHANGEOVER_TRY_ASSIGN(const auto specs,
                        call("the source", [&] { return source.begin_update(); }));
  return SourceLease(source, specs);
}

SourceLease::SourceLease(SourceLease&& other) noexcept
    : source_(std::exchange(other.source_, nullptr)), specs_(other.specs_) {}

SourceLease::~SourceLease() {
  if (source_ != nullptr) {
    // The update is decided by now: what fails here changes nothing (rule S5).
    (void)call("the source", [&] {
      source_->end_update();
      return Status();
    });
  }
}

SourceStream::SourceStream(const SourceLease& lease, protocol::StreamPlan plan,
                           const os::Clock& clock)
    : lease_(lease), plan_(std::move(plan)), clock_(clock) {}

Instant SourceStream::deadline(const Options& options) const {
  // The road drops a peer after the stall limit; twice that is for the call as a whole.
  return clock_.now() + 2 * options.stall;
}

Status SourceStream::send(transport::SendRoad& road, const Options& options) {
  protocol::StreamSender sender(lease_.specs(), plan_, options.version);
  digester_.clear();
  digest_.reset();
  next_tensor_ = 0;
  sent_ = 0;
  for (;;) {
    CHANGEOVER_TRY_ASSIGN(const auto step, sender.next());
    if (!step) {
      break;
    }
    if (step->part == protocol::StreamPart::kPayload) {
      CHANGEOVER_TRY(send_payload(road, options, step->tensor));
    } else {
      CHANGEOVER_TRY(road.send(part_of(step->part), step->bytes, deadline(options)));
    }
    if (sender.at_frame_end()) {
      CHANGEOVER_TRY(road.flush(deadline(options)));
    }
  }
  CHANGEOVER_TRY(road.flush(deadline(options)));
  CHANGEOVER_TRY(read_empty_before(lease_.specs().size(), options.digests));
  if (options.digests) {
    digest_ = digester_.finish();
  }
  return {};
}

Status SourceStream::check(const Between& between) {
  CHANGEOVER_TRY_ASSIGN(const Digest now, digest_only(between));
  if (now != *digest_) {
    return {Code::kAborted, "the source changed while it was published: digest " +
                                digest_->to_text() + " when it was read, " + now.to_text() +
                                " after the last copy (rule U1)"};
  }
  return {};
}

Result<TensorView> SourceStream::read(size_t tensor) {
  const TensorSpec& spec = lease_.specs()[tensor];
  auto view = lease_.source().read(tensor);
  if (!view.ok()) {
    return view.status().with_context("reading tensor " + spec.name);
  }
  if (view->dtype != spec.dtype || view->shape != spec.shape) {
    return Status(Code::kInvalidArgument, "tensor " + spec.name + " reads as " +
                                              tensor::describe(view->dtype, view->shape) +
                                              ", it was announced as " +
                                              tensor::describe(spec.dtype, spec.shape));
  }
  next_tensor_ = tensor + 1;
  return view;
}

// Zero-size tensors have no bytes to send; they are read and digested in their turn all the same.
Status SourceStream::read_empty_before(size_t tensor, bool digests) {
  while (next_tensor_ < tensor) {
    const size_t empty = next_tensor_;
    CHANGEOVER_TRY(read(empty).status());
    if (digests) {
      digester_.add(lease_.specs()[empty], base::digest({}));
    }
  }
  return {};
}

Status SourceStream::send_payload(transport::SendRoad& road, const Options& options,
                                  size_t tensor) {
  CHANGEOVER_TRY(read_empty_before(tensor, options.digests));
  CHANGEOVER_TRY_ASSIGN(const TensorView view, read(tensor));
  CHANGEOVER_TRY_ASSIGN(const tensor::Packer packer, tensor::Packer::open(view));
  hasher_.reset();
  if (road.capabilities().lends_memory || packer.contiguous().empty()) {
    for (uint64_t at = 0; at < packer.bytes();) {
      CHANGEOVER_TRY_ASSIGN(const auto lent, road.lend(transport::Part::kPayload,
                                                       packer.bytes() - at, deadline(options)));
      for (uint64_t done = 0; done < lent.size();) {
        const auto block = lent.subspan(done, std::min(kBlockBytes, lent.size() - done));
        packer.pack(at + done, block);
        if (options.digests) {
          hasher_.update(block);
        }
        done += block.size();
      }
      CHANGEOVER_TRY(road.commit(lent.size()));
      at += lent.size();
      CHANGEOVER_TRY(after(options, lent.size()));
    }
  } else {
    CHANGEOVER_TRY(send_contiguous(road, options, packer.contiguous()));
  }
  if (options.digests) {
    digester_.add(lease_.specs()[tensor], hasher_.finish());
  }
  return {};
}

Status SourceStream::send_contiguous(transport::SendRoad& road, const Options& options,
                                     std::span<const std::byte> bytes) {
  for (uint64_t at = 0; at < bytes.size(); at += kSendBytes) {
    const auto chunk = bytes.subspan(at, std::min<uint64_t>(kSendBytes, bytes.size() - at));
    if (options.digests) {
      hasher_.update(chunk);
    }
    CHANGEOVER_TRY(road.send(transport::Part::kPayload, chunk, deadline(options)));
    CHANGEOVER_TRY(after(options, chunk.size()));
  }
  return {};
}

Status SourceStream::after(const Options& options, uint64_t bytes) {
  sent_ += bytes;
  if (options.on_progress) {
    options.on_progress(sent_, plan_.payload_bytes_total);
  }
  return options.between ? options.between() : Status();
}

Result<Digest> SourceStream::digest_only(const Between& between) {
  std::vector<std::byte> block(kBlockBytes);
  digester_.clear();
  next_tensor_ = 0;
  for (size_t i = 0; i < lease_.specs().size(); ++i) {
    CHANGEOVER_TRY_ASSIGN(const TensorView view, read(i));
    CHANGEOVER_TRY_ASSIGN(const tensor::Packer packer, tensor::Packer::open(view));
    const auto whole = packer.contiguous();
    hasher_.reset();
    for (uint64_t at = 0; at < packer.bytes();) {
      const uint64_t bytes = std::min(whole.empty() ? kBlockBytes : kSendBytes,  //
                                      packer.bytes() - at);
      if (whole.empty()) {
        packer.pack(at, std::span(block).first(bytes));
      }
      hasher_.update(whole.empty() ? std::span<const std::byte>(block).first(bytes)
                                   : whole.subspan(at, bytes));
      at += bytes;
      if (between) {
        CHANGEOVER_TRY(between());
      }
    }
    digester_.add(lease_.specs()[i], hasher_.finish());
  }
  return digester_.finish();
}

}  // namespace changeover::runtime
