#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <changeover/inspect.h>

#include "base/digest.h"
#include "base/utf8.h"
#include "wire/header.h"
#include "wire/metadata.h"
#include "wire/slices.h"

namespace changeover {

namespace {

class Inspector {
 public:
  explicit Inspector(std::span<const std::byte> left) : left_(left) {}

  StreamReport run() && {
    while (frame()) {
    }
    return std::move(report_);
  }

 private:
  // Reads one frame; false at END and where nothing further can be read.
  bool frame() {
    const size_t number = report_.frames.size();
    if (left_.size() < wire::kHeaderBytes) {
      fail(left_.empty() ? "it ends after " + std::to_string(number) + " frames without END (W5)"
                         : "frame " + std::to_string(number) + ": the header is cut off, " +
                               std::to_string(left_.size()) + " of 32 bytes are there");
      return false;
    }
    const wire::Header header = wire::decode_header(left_.first<wire::kHeaderBytes>());
    left_ = left_.subspan(wire::kHeaderBytes);
    const wire::HeaderCheck check = wire::check_header(header, {}, version_);
    if (header.command == wire::kEnd) {
      fail(check.status, "END");
      fail(slices_.on_end(), "");
      report_.end_version = header.version;
      if (!left_.empty()) {
        fail(std::to_string(left_.size()) + " bytes after END (W5)");
      }
      return false;
    }
    const std::string name = "frame " + std::to_string(number);
    fail(check.status, name);
    if (!check.in_step) {
      return false;
    }
    version_ = version_.value_or(header.version);
    StreamFrame& frame = report_.frames.emplace_back();
    frame.command = header.command;
    frame.version = header.version;
    frame.metadata_bytes = header.metadata_bytes;
    frame.payload_bytes = header.payload_bytes;
    return body(frame, name);
  }

  bool body(StreamFrame& frame, const std::string& name) {
    const auto metadata_bytes = static_cast<uint64_t>(frame.metadata_bytes);
    const auto payload_bytes = static_cast<uint64_t>(frame.payload_bytes);
    if (left_.size() < metadata_bytes) {
      fail(name + ": metadata of " + std::to_string(metadata_bytes) + " bytes is cut off, " +
           std::to_string(left_.size()) + " are there");
      return false;
    }
    const std::span<const std::byte> metadata = left_.first(metadata_bytes);
    left_ = left_.subspan(metadata_bytes);
    if (frame.command == wire::kBucket) {
      tensors(frame, metadata, name);
    }
    if (left_.size() < payload_bytes) {
      fail(name + ": payload of " + std::to_string(payload_bytes) + " bytes is cut off, " +
           std::to_string(left_.size()) + " are there");
      return false;
    }
    frame.payload_position = position_of(left_);
    check_digests(frame, left_.first(payload_bytes), name);
    left_ = left_.subspan(payload_bytes);
    return true;
  }

  void tensors(StreamFrame& frame, std::span<const std::byte> metadata, const std::string& name) {
    Result<std::vector<wire::Entry>> entries =
        wire::decode_metadata(metadata, static_cast<uint64_t>(frame.payload_bytes));
    if (!entries.ok()) {
      fail(entries.status(), name);
      return;
    }
    fail(slices_.on_frame(*entries), name);
    frame.tensors.reserve(entries->size());
    for (wire::Entry& entry : *entries) {
      frame.tensors.push_back(
          {std::move(entry.spec), entry.offset, entry.nbytes, entry.slice, entry.xxh3});
    }
    // Over frames too: a tensor that comes twice would land twice (rule T4).
    for (const StreamTensor& tensor : frame.tensors) {
      if (tensor.slice && tensor.slice->first != 0) {
        continue;
      }
      const auto [first, added] = seen_.emplace(tensor.spec.name, report_.frames.size() - 1);
      if (!added) {
        fail(name + ": tensor " + base::quoted(tensor.spec.name) + " was in frame " +
             std::to_string(first->second) + " already (T4)");
      }
    }
  }

  // Of the tensors that carry their own (rule W6).
  void check_digests(const StreamFrame& frame, std::span<const std::byte> payload,
                     const std::string& name) {
    for (const StreamTensor& tensor : frame.tensors) {
      const auto bytes = payload.subspan(tensor.offset, tensor.nbytes);
      if (tensor.slice) {
        if (tensor.slice->first == 0) {
          parts_.clear();
        }
        parts_.push_back(bytes);
      }
      if (!tensor.xxh3) {
        continue;
      }
      base::Hasher hasher;
      if (tensor.slice) {
        for (const auto part : parts_) {
          hasher.update(part);
        }
      } else {
        hasher.update(bytes);
      }
      if (const Digest digest = hasher.finish(); digest != *tensor.xxh3) {
        fail(Status(Code::kCorrupt, "tensor " + base::quoted(tensor.spec.name) +
                                        ": its bytes have digest " + digest.to_text() +
                                        ", its xxh3 says " + tensor.xxh3->to_text() + " (W6)"),
             name);
      }
    }
  }

  uint64_t position_of(std::span<const std::byte> rest) const { return whole_bytes_ - rest.size(); }

  void fail(std::string_view message) { fail(Status(Code::kCorrupt, message), ""); }
  void fail(const Status& status, const std::string& where) {
    if (report_.status.ok() && !status.ok()) {
      report_.status = where.empty() ? status : status.with_context(where);
    }
  }

  std::span<const std::byte> left_;
  const uint64_t whole_bytes_ = left_.size();
  std::optional<int64_t> version_;
  std::unordered_map<std::string_view, size_t> seen_;  // Name -> frame; views into report_.
  wire::SliceTracker slices_;
  std::vector<std::span<const std::byte>> parts_;  // Of the tensor that is split, so far.
  StreamReport report_;
};

}  // namespace

StreamReport inspect_stream(std::span<const std::byte> recording) {
  return Inspector(recording).run();
}

}  // namespace changeover
