#include <string>

#include <changeover/inspect.h>

#include <gtest/gtest.h>

#include "wire/header.h"
#include "wire/metadata.h"

namespace changeover {
namespace {

using wire::Header;

std::string header(int64_t command, int64_t metadata, int64_t payload, int64_t version) {
  const auto bytes = wire::encode_header({command, metadata, payload, version});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string bucket(const std::string& name, int64_t size, int64_t version) {
  std::string metadata;
  const TensorSpec spec{name, DType::kU8, {size}};
  EXPECT_TRUE(wire::encode_metadata(std::span(&spec, 1), metadata).ok());
  return header(1, static_cast<int64_t>(metadata.size()), size, version) + metadata +
         std::string(static_cast<size_t>(size), '#');
}

std::string end(int64_t version) {
  return header(0, 0, 0, version);
}

StreamReport inspect(const std::string& recording) {
  return inspect_stream(std::as_bytes(std::span(recording)));
}

void expect_error(const StreamReport& report, std::string_view why) {
  EXPECT_EQ(report.status.code(), Code::kCorrupt);
  EXPECT_NE(report.status.message().find(why), std::string::npos) << report.status.message();
}

TEST(Inspect, AWholeStream) {
  const std::string first = bucket("a", 3, 7);
  const StreamReport report = inspect(first + bucket("b", 5, 7) + end(7));
  EXPECT_TRUE(report.status.ok()) << report.status.to_string();
  ASSERT_EQ(report.frames.size(), 2u);
  EXPECT_EQ(report.frames[0].command, 1);
  EXPECT_EQ(report.frames[0].version, 7);
  EXPECT_EQ(report.frames[0].payload_bytes, 3);
  EXPECT_EQ(report.frames[0].payload_position, first.size() - 3);
  EXPECT_EQ(report.frames[1].payload_position, first.size() * 2 + 2 - 5);
  ASSERT_EQ(report.frames[1].tensors.size(), 1u);
  EXPECT_EQ(report.frames[1].tensors[0].spec.name, "b");
  EXPECT_EQ(report.frames[1].tensors[0].nbytes, 5u);
  EXPECT_EQ(report.end_version, 7);
  EXPECT_TRUE(inspect(end(0)).status.ok());
}

TEST(Inspect, W5_TheStreamEndsWithEndAndNothingElse) {
  expect_error(inspect(""), "ends after 0 frames without END");
  const StreamReport cut = inspect(bucket("a", 3, 7));
  expect_error(cut, "ends after 1 frames without END");
  EXPECT_FALSE(cut.end_version.has_value());
  const StreamReport more = inspect(bucket("a", 3, 7) + end(7) + "xy");
  expect_error(more, "2 bytes after END");
  EXPECT_EQ(more.end_version, 7);
  expect_error(inspect(header(0, 4, 0, 7) + "abcd"), "END carries sizes");
  expect_error(inspect(bucket("a", 3, 7) + bucket("b", 3, 8) + end(7)),
               "frame 1: the frame carries version 8, the stream's is 7");
  expect_error(inspect(bucket("a", 3, 7) + end(8)), "END: the frame carries version 8");
}

TEST(Inspect, TruncatedAtEveryByteIsAnErrorThatNamesThePlace) {
  const std::string whole = bucket("a", 3, 7) + bucket("b", 5, 7) + end(7);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const StreamReport report = inspect(whole.substr(0, bytes));
    EXPECT_FALSE(report.status.ok()) << bytes;
    EXPECT_FALSE(report.end_version.has_value());
  }
  expect_error(inspect(whole.substr(0, 10)), "frame 0: the header is cut off, 10 of 32 bytes");
  expect_error(inspect(whole.substr(0, 40)), "frame 0: metadata of 64 bytes is cut off, 8 are");
  expect_error(inspect(whole.substr(0, 97)), "frame 0: payload of 3 bytes is cut off, 1 are");
}

TEST(Inspect, R1_FramesAfterTheFirstBrokenRuleAreStillListed) {
  std::string broken = bucket("a", 3, 7);
  broken[broken.find("uint8")] = 'x';
  const StreamReport report =
      inspect(broken + header(9, 1, 2, 7) + "mpp" + bucket("b", 5, 7) + end(7));
  expect_error(report, "frame 0: metadata: entry 0: tensor \"a\": its dtype \"xint8\" is unknown");
  ASSERT_EQ(report.frames.size(), 3u);
  EXPECT_TRUE(report.frames[0].tensors.empty());
  EXPECT_EQ(report.frames[1].command, 9);
  EXPECT_EQ(report.frames[2].tensors.size(), 1u);
  EXPECT_EQ(report.end_version, 7);
}

TEST(Inspect, R3_NothingAfterSizesThatCannotBeTrusted) {
  const StreamReport report = inspect(bucket("a", 3, 7) + header(1, 5, -1, 7) + end(7));
  expect_error(report, "frame 1: the header's payload size is -1");
  EXPECT_EQ(report.frames.size(), 1u);
  EXPECT_FALSE(report.end_version.has_value());
  expect_error(inspect(header(1, INT64_MAX, 0, 7)), "the ceiling is 67108864");
  expect_error(inspect(header(1, 2, INT64_MAX, 7) + "[]"), "payload has 9223372036854775807");
}

TEST(Inspect, T4_ATensorMayNotComeTwice) {
  expect_error(inspect(bucket("a", 3, 7) + bucket("a", 3, 7) + end(7)),
               "frame 1: tensor \"a\" was in frame 0 already");
}

// A frame of version 7 with these tensors; its payload counts up from `first`.
std::string extended(std::vector<wire::Entry> entries, uint8_t first = 0) {
  std::string metadata;
  EXPECT_TRUE(wire::encode_metadata(entries, metadata).ok());
  std::string payload;
  const size_t bytes = entries.back().offset + entries.back().nbytes;
  for (size_t i = 0; i < bytes; ++i) {
    payload += static_cast<char>(first + i);
  }
  return header(1, static_cast<int64_t>(metadata.size()), static_cast<int64_t>(bytes), 7) +
         metadata + payload;
}

// XXH3-128 of the bytes 0, 1, 2, 3, by the xxhash package of Python.
constexpr std::string_view kDigest0To3 = "eb70bf5fc779e9e6a6111d53e80a3db5";

TEST(Inspect, W6_ASplitTensorWithItsDigest) {
  const TensorSpec w{"w", DType::kU8, {4}};
  const Digest right = *Digest::parse(kDigest0To3);
  const auto first = extended({{w, 0, 3, TensorSlice{0, 4}, std::nullopt}});
  const StreamReport report =
      inspect(first + extended({{w, 0, 1, TensorSlice{3, 4}, right}}, 3) + end(7));
  EXPECT_TRUE(report.status.ok()) << report.status.to_string();
  EXPECT_EQ(report.frames[0].tensors[0].slice, (TensorSlice{0, 4}));
  EXPECT_EQ(report.frames[1].tensors[0].slice, (TensorSlice{3, 4}));
  EXPECT_EQ(report.frames[1].tensors[0].xxh3, right);
  EXPECT_TRUE(inspect(extended({{w, 0, 4, std::nullopt, right}}) + end(7)).status.ok());
  const std::string wrong = "tensor \"w\": its bytes have digest ";
  expect_error(inspect(first + extended({{w, 0, 1, TensorSlice{3, 4}, right}}, 4) + end(7)),
               "frame 1: " + wrong);
  expect_error(inspect(extended({{w, 0, 4, std::nullopt, right}}, 1) + end(7)),
               "frame 0: " + wrong);
}

TEST(Inspect, W6_W7_PartsAreCheckedFromFrameToFrame) {
  const TensorSpec w{"w", DType::kU8, {4}};
  const auto first = extended({{w, 0, 3, TensorSlice{0, 4}, std::nullopt}});
  expect_error(inspect(first + first + end(7)), "frame 1: tensor \"w\": its part from byte 0 over");
  expect_error(inspect(first + end(7)), "tensor \"w\": END came before its part from byte 3 of 4");
  const auto last = extended({{w, 0, 1, TensorSlice{3, 4}, std::nullopt}});
  expect_error(inspect(first + last + first + last + end(7)),
               "frame 2: tensor \"w\" was in frame 0 already (T4)");
}

}  // namespace
}  // namespace changeover
