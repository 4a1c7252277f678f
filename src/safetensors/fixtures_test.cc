// The recorded streams of the real sender: every one decodes to its tensors, and ours for the same
// tensors is the same bytes (where rule W9 does not say otherwise).
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include <changeover/checkpoint.h>
#include <changeover/inspect.h>

#include <gtest/gtest.h>

#include "base/json.h"
#include "tensor/copy.h"
#include "wire/bucket.h"
#include "wire/header.h"
#include "wire/metadata.h"

namespace changeover {
namespace {

const std::string kFolder = std::string(CHANGEOVER_SOURCE_DIR) + "/tests/fixtures/lumen_stream/";

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Fixture {
  std::string stream;
  std::unique_ptr<Checkpoint> checkpoint;
  uint64_t bucket_bytes = 0;
  int64_t version = 0;
};

Fixture load(const std::string& name) {
  Fixture fixture;
  fixture.stream = read_all(kFolder + name + ".stream");
  fixture.checkpoint = std::move(Checkpoint::open(kFolder + name + ".safetensors")).take();
  const auto description = base::JsonDocument::parse(read_all(kFolder + name + ".json"));
  EXPECT_TRUE(description.ok());
  const base::JsonValue root = description->root();
  fixture.bucket_bytes = static_cast<uint64_t>(*root.find("bucket_bytes")->integer());
  fixture.version = *root.find("version")->integer();
  std::vector<std::string> order;
  for (const base::JsonValue tensor : root.find("order")->elements()) {
    order.emplace_back(*tensor.string());
  }
  EXPECT_TRUE(fixture.checkpoint->set_order(order).ok());
  return fixture;
}

std::string send(const Fixture& fixture) {
  std::string out;
  const auto append = [&](std::span<const std::byte> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const std::span<const TensorSpec> specs = fixture.checkpoint->specs();
  const auto buckets = wire::plan_buckets(specs, fixture.bucket_bytes);
  EXPECT_TRUE(buckets.ok()) << buckets.status().to_string();
  for (const wire::Bucket& bucket : *buckets) {
    append(wire::encode_header({wire::kBucket, static_cast<int64_t>(bucket.metadata_bytes),
                                static_cast<int64_t>(bucket.payload_bytes), fixture.version}));
    EXPECT_TRUE(wire::encode_metadata(specs.subspan(bucket.first, bucket.count), out).ok());
    for (size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
      append(tensor::Packer::open(fixture.checkpoint->view(i))->contiguous());
    }
  }
  append(wire::encode_header({wire::kEnd, 0, 0, fixture.version}));
  return out;
}

class LumenStream : public ::testing::TestWithParam<const char*> {};

TEST_P(LumenStream, W8_DecodesToItsTensors) {
  const Fixture fixture = load(GetParam());
  const std::span stream = std::as_bytes(std::span(fixture.stream));
  const StreamReport report = inspect_stream(stream);
  ASSERT_TRUE(report.status.ok()) << report.status.to_string();
  EXPECT_EQ(report.end_version, fixture.version);
  size_t next = 0;
  for (const StreamFrame& frame : report.frames) {
    EXPECT_EQ(frame.version, fixture.version);
    for (const StreamTensor& tensor : frame.tensors) {
      ASSERT_LT(next, fixture.checkpoint->specs().size());
      EXPECT_EQ(tensor.spec, fixture.checkpoint->specs()[next]);
      // Where it lies, also at an offset that is no multiple of the element size.
      EXPECT_EQ(std::memcmp(stream.data() + frame.payload_position + tensor.offset,
                            fixture.checkpoint->view(next).data, tensor.nbytes),
                0)
          << tensor.spec.name;
      ++next;
    }
  }
  EXPECT_EQ(next, fixture.checkpoint->specs().size());
}

TEST_P(LumenStream, W4_W9_OursIsTheSameBytesOrDiffersAsTheRuleSays) {
  const std::string name = GetParam();
  const Fixture fixture = load(name);
  if (name == "zero_alone") {  // Read, never written.
    EXPECT_FALSE(wire::plan_buckets(fixture.checkpoint->specs(), fixture.bucket_bytes).ok());
    return;
  }
  const std::string ours = send(fixture);
  if (name != "zero_last") {
    EXPECT_TRUE(ours == fixture.stream) << name;
    return;
  }
  // The real sender ends with a bucket without bytes; ours puts its tensor into the last one.
  const StreamReport report = inspect_stream(std::as_bytes(std::span(ours)));
  ASSERT_TRUE(report.status.ok());
  ASSERT_EQ(report.frames.size(), 1u);
  EXPECT_EQ(report.frames[0].tensors.size(), 2u);
  EXPECT_EQ(inspect_stream(std::as_bytes(std::span(fixture.stream))).frames.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Wire, LumenStream,
                         ::testing::Values("dense_bf16", "dense_one_bucket", "mixed_dtypes",
                                           "exact_bucket", "names", "zero_after_flush",
                                           "zero_alone", "zero_among", "zero_last"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace changeover
