#include "reference/live_pass.h"

#include <algorithm>

#include "base/digest.h"

namespace changeover::reference {
namespace {

constexpr uint64_t kWindowsMax = 4096;

uint64_t bytes_of(const LiveParameter& parameter) {
  const auto bytes = byte_count(parameter.spec.dtype, parameter.spec.shape);
  return bytes.ok() ? static_cast<uint64_t>(*bytes) : 0;
}

}  // namespace

LivePass::LivePass(const ParameterStore& store, uint64_t bytes_max) : store_(store) {
  uint64_t blocks = 0;
  for (const LiveParameter& parameter : store.parameters()) {
    blocks += (bytes_of(parameter) + kBlockBytes - 1) / kBlockBytes;
  }
  const uint64_t blocks_max = std::max<uint64_t>(1, bytes_max / kBlockBytes);
  windows_ = static_cast<uint32_t>(
      std::clamp<uint64_t>((blocks + blocks_max - 1) / blocks_max, 1, kWindowsMax));
}

PassResult LivePass::run(uint64_t step, uint32_t half) const {
  PassResult result;
  result.window = static_cast<uint32_t>(step % windows_);
  base::Hasher hasher;
  uint64_t block = 0;
  for (const LiveParameter& parameter : store_.half(half)) {
    const uint64_t bytes = bytes_of(parameter);
    for (uint64_t at = 0; at < bytes; at += kBlockBytes, ++block) {
      if (block % windows_ == result.window) {
        hasher.update({parameter.data + at, std::min<uint64_t>(kBlockBytes, bytes - at)});
      }
    }
  }
  const Digest digest = hasher.finish();
  for (size_t i = 0; i < sizeof result.checksum; ++i) {
    result.checksum = result.checksum << 8 | digest.bytes[i];
  }
  return result;
}

}  // namespace changeover::reference
