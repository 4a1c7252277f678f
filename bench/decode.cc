// How fast a frame's metadata is read and checked.
#include <span>
#include <string>

#include "bench/family.h"
#include "os/clock.h"
#include "wire/metadata.h"

namespace changeover::bench {
namespace {

Status measure(const Context& context, Recorder& recorder) {
  CHANGEOVER_TRY_ASSIGN(const Model* model, context.models.experts());
  std::vector<TensorSpec> specs;
  for (const Source& source : model->plan.sources) {
    specs.push_back(source.spec);
  }
  std::string metadata;
  CHANGEOVER_TRY(wire::encode_metadata(specs, metadata));
  const auto bytes = std::as_bytes(std::span(metadata));
  const os::SystemClock clock;
  const int rounds = context.rounds(41);
  wire::MetadataDecoder decoder;
  for (int round = -1; round < rounds; ++round) {
    const Instant start = clock.now();
    CHANGEOVER_TRY(decoder.decode(bytes, model->bytes).status());
    const double seconds = std::chrono::duration<double>(clock.now() - start).count();
    recorder.add(round < 0 ? "metadata_decode_first" : "metadata_decode",
                 static_cast<double>(bytes.size()) / seconds * 1e-6);
  }
  return {};
}

constexpr FigureSpec kDecode[] = {
    {"metadata_decode", "MB/s", true, "", 300.0},
    {"metadata_decode_first", "MB/s", true, "", {}},
};
constexpr Family kFamilies[] = {{kDecode, measure}};

}  // namespace

std::span<const Family> decode_families() {
  return kFamilies;
}

}  // namespace changeover::bench
