#include "protocol/stream_receiver.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "wire/header.h"
#include "wire/metadata.h"

namespace changeover::protocol {

StreamReceiver::StreamReceiver(const StreamReceiverOptions& options, FrameSink& sink)
    : options_(options), sink_(sink) {}

std::optional<StreamReceiver::Want> StreamReceiver::want() const {
  if (done_) {
    return std::nullopt;
  }
  return Want{part_, size_ - got_};
}

void StreamReceiver::on_bytes(std::span<const std::byte> bytes) {
  if (done_ || bytes.empty() || bytes.size() > size_ - got_) {
    return;
  }
  switch (part_) {
    case StreamPart::kHeader:
      std::memcpy(header_bytes_.data() + got_, bytes.data(), bytes.size());
      break;
    case StreamPart::kMetadata:
      if (failure_.ok()) {
        std::memcpy(metadata_.data() + got_, bytes.data(), bytes.size());
      }
      break;
    case StreamPart::kPayload:
      payload_total_ += bytes.size();
      if (failure_.ok()) {
        fail(sink_.on_payload(got_, bytes));
      }
      break;
  }
  got_ += bytes.size();
  if (got_ == size_) {
    part_ == StreamPart::kHeader ? on_header() : next_part();
  }
}

void StreamReceiver::on_header() {
  header_ = wire::decode_header(header_bytes_);
  const wire::FrameLimits limits{options_.metadata_bytes_max, options_.payload_bytes_max};
  const wire::HeaderCheck check = wire::check_header(header_, limits, options_.version);
  if (!check.in_step) {
    leave(check.status.with_context("frame " + std::to_string(frames_ + 1)));
    return;
  }
  fail(check.status.with_context("frame " + std::to_string(frames_ + 1)));
  if (header_.command == wire::kEnd) {
    fail(slices_.on_end());
    if (failure_.ok()) {
      fail(sink_.on_end());
    }
    done_ = true;
    return;
  }
  if (!options_.version) {
    options_.version = header_.version;  // W5: every frame carries the same one.
  }
  ++frames_;
  part_ = StreamPart::kHeader;
  next_part();
}

// Moves on from a part that is complete, over parts of no bytes, to the next one with bytes.
void StreamReceiver::next_part() {
  got_ = 0;
  if (part_ == StreamPart::kHeader) {
    part_ = StreamPart::kMetadata;
    size_ = static_cast<uint64_t>(header_.metadata_bytes);
    if (failure_.ok()) {
      // Sizes were checked against the ceilings; memory may still be short (rule R3).
      try {
        metadata_.resize(size_);
      } catch (const std::bad_alloc&) {
        leave({Code::kExhausted, "no memory for " + std::to_string(size_) + " bytes of metadata"});
        return;
      }
    }
    if (size_ != 0) {
      return;
    }
  }
  if (part_ == StreamPart::kMetadata) {
    if (failure_.ok()) {
      on_metadata();
    }
    part_ = StreamPart::kPayload;
    size_ = static_cast<uint64_t>(header_.payload_bytes);
    if (size_ != 0) {
      return;
    }
  }
  part_ = StreamPart::kHeader;
  size_ = wire::kHeaderBytes;
}

void StreamReceiver::on_metadata() {
  auto entries = wire::decode_metadata(metadata_, static_cast<uint64_t>(header_.payload_bytes),
                                       options_.extensions);
  if (!entries.ok()) {
    fail(entries.status().with_context("frame " + std::to_string(frames_)));
    return;
  }
  if (Status status = slices_.on_frame(*entries); !status.ok()) {
    fail(status.with_context("frame " + std::to_string(frames_)));
    return;
  }
  entries_ = std::move(entries).take();
  tensors_.clear();
  for (const wire::Entry& entry : entries_) {
    tensors_.push_back({&entry.spec, entry.offset, entry.nbytes, entry.slice, entry.xxh3});
  }
  fail(sink_.on_frame(tensors_));
}

void StreamReceiver::on_road_failure(const Status& why) {
  if (!done_) {
    leave(why.with_context(position()));
  }
}

void StreamReceiver::fail(const Status& why) {
  if (failure_.ok() && !why.ok()) {
    failure_ = why;
    // A kept error holds no buffer alive (rule R4). Assigning {} would keep the memory.
    metadata_ = std::vector<std::byte>();
    entries_ = std::vector<wire::Entry>();
    tensors_ = std::vector<update::FrameTensor>();
  }
}

void StreamReceiver::leave(const Status& why) {
  out_of_step_ = true;
  done_ = true;
  fail(why);
}

std::string StreamReceiver::position() const {
  const char* part = part_ == StreamPart::kHeader     ? "header"
                     : part_ == StreamPart::kMetadata ? "metadata"
                                                      : "payload";
  const uint64_t frame = frames_ + (part_ == StreamPart::kHeader ? 1 : 0);
  return "frame " + std::to_string(frame) + ", " + part + ", " + std::to_string(got_) + " of " +
         std::to_string(size_) + " bytes";
}

}  // namespace changeover::protocol
