// A recording that keeps every rule must come back the same when it is written anew.
#include <string>

#include <changeover/inspect.h>

#include "wire/header.h"
#include "wire/metadata.h"

using namespace changeover;

namespace {

std::string rewrite(const StreamReport& report, std::span<const std::byte> recording) {
  std::string out;
  const auto append = [&](std::span<const std::byte> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const StreamFrame& frame : report.frames) {
    std::vector<wire::Entry> entries;
    for (const StreamTensor& tensor : frame.tensors) {
      entries.push_back({tensor.spec, tensor.offset, tensor.nbytes, tensor.slice, tensor.xxh3});
    }
    std::string metadata;
    if (!wire::encode_metadata(entries, metadata).ok()) {
      __builtin_trap();
    }
    append(wire::encode_header({frame.command, static_cast<int64_t>(metadata.size()),
                                frame.payload_bytes, frame.version}));
    out += metadata;
    append(recording.subspan(frame.payload_position, static_cast<size_t>(frame.payload_bytes)));
  }
  append(wire::encode_header({wire::kEnd, 0, 0, *report.end_version}));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span recording(reinterpret_cast<const std::byte*>(data), size);
  const StreamReport report = inspect_stream(recording);
  if (!report.status.ok()) {
    return 0;
  }
  const std::string once = rewrite(report, recording);
  const std::span once_bytes = std::as_bytes(std::span(once));
  const StreamReport again = inspect_stream(once_bytes);
  if (!again.status.ok() || rewrite(again, once_bytes) != once) {
    __builtin_trap();
  }
  return 0;
}
