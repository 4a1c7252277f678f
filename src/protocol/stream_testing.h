// A stream as bytes, made by the sender; and a sink that remembers what reached it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "protocol/stream_receiver.h"
#include "protocol/stream_sender.h"
#include "update/toy_model_testing.h"
#include "wire/header.h"

namespace changeover::protocol::testing {

using Bytes = std::vector<std::byte>;

inline void append(Bytes& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

inline Bytes encode_stream(std::span<const update::testing::Sent> tensors, uint64_t bucket_bytes,
                           int64_t version, const WireExtensions& extensions = {}) {
  std::vector<TensorSpec> specs;
  std::vector<Digest> digests;
  for (const auto& sent : tensors) {
    specs.push_back(sent.spec);
    digests.push_back(base::digest(sent.bytes));
  }
  StreamSender sender(specs, std::move(plan_stream(specs, bucket_bytes, extensions)).take(),
                      version, digests);
  Bytes stream;
  for (;;) {
    auto step = sender.next();
    if (!step.ok() || !*step) {
      return stream;
    }
    append(stream, !(*step)->bytes.empty()
                       ? (*step)->bytes
                       : std::span<const std::byte>(tensors[(*step)->tensor].bytes)
                             .subspan((*step)->first, (*step)->nbytes));
  }
}

inline Bytes frame(const wire::Header& header, const std::string& metadata, size_t payload_bytes) {
  Bytes bytes;
  append(bytes, wire::encode_header(header));
  append(bytes, std::as_bytes(std::span(metadata)));
  bytes.resize(bytes.size() + payload_bytes, std::byte{7});
  return bytes;
}

class RecordingSink final : public FrameSink {
 public:
  Status on_frame(std::span<const update::FrameTensor> tensors) override {
    frames.push_back({});
    for (const update::FrameTensor& tensor : tensors) {
      frames.back().push_back(*tensor.spec);
    }
    return frames.size() == fail_at_frame ? Status(Code::kInvalidArgument, "no such tensor")
                                          : Status();
  }
  Status on_payload(uint64_t, std::span<const std::byte> bytes) override {
    append(payload, bytes);
    last_run = bytes.data();
    return {};
  }
  Status on_end() override {
    ++ends;
    return {};
  }

  std::vector<std::vector<TensorSpec>> frames;
  Bytes payload;
  const std::byte* last_run = nullptr;
  int ends = 0;
  size_t fail_at_frame = 0;
};

// Gives the receiver what it wants, at most `run_bytes` at a time; returns the bytes it took.
inline size_t feed(StreamReceiver& receiver, std::span<const std::byte> stream,
                   size_t run_bytes = 1 << 20) {
  size_t at = 0;
  while (auto want = receiver.want()) {
    const size_t bytes =
        std::min({static_cast<size_t>(want->bytes), run_bytes, stream.size() - at});
    if (bytes == 0) {
      break;
    }
    receiver.on_bytes(stream.subspan(at, bytes));
    at += bytes;
  }
  return at;
}

}  // namespace changeover::protocol::testing
