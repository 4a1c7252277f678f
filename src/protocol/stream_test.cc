// The two ends of a stream (rules R1-R4, R6, R7, W4, W5, W7, W9).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "protocol/stream_receiver.h"
#include "protocol/stream_sender.h"
#include "protocol/stream_testing.h"
#include "protocol/transaction_sink.h"
#include "wire/metadata.h"

namespace changeover::protocol {
namespace {

using ::testing::HasSubstr;
using namespace testing;
using update::testing::all_tensors;
using update::testing::Sent;
using update::testing::toy_plan;
using update::testing::toy_weights;
using update::testing::ToyRank;

StreamReceiverOptions options(std::optional<int64_t> version = 7) {
  StreamReceiverOptions options;
  options.version = version;
  options.payload_bytes_max = 4096;
  options.metadata_bytes_max = 4096;
  return options;
}

class Stream : public ::testing::Test {
 protected:
  const std::vector<Sent> tensors_ = all_tensors(toy_plan(), toy_weights(toy_plan(), 1));
  const Bytes stream_ = encode_stream(tensors_, 64, 7);
  RecordingSink sink_;
};

TEST_F(Stream, WhatIsSentArrivesHoweverItIsCut) {
  Bytes payload;
  std::vector<TensorSpec> specs;
  for (const Sent& sent : tensors_) {
    append(payload, sent.bytes);
    specs.push_back(sent.spec);
  }
  for (uint64_t bucket : {1u, 30u, 64u, 100000u}) {
    const Bytes stream = encode_stream(tensors_, bucket, 7);
    for (size_t run : {size_t{1}, size_t{13}, size_t{1} << 20}) {
      RecordingSink sink;
      StreamReceiver receiver(options(), sink);
      ASSERT_EQ(feed(receiver, stream, run), stream.size());
      ASSERT_TRUE(receiver.done() && receiver.result().ok());
      EXPECT_EQ(sink.payload, payload);
      EXPECT_EQ(receiver.payload_bytes(), payload.size());
      EXPECT_EQ(sink.ends, 1);
      std::vector<TensorSpec> got;
      for (const auto& frame : sink.frames) {
        got.insert(got.end(), frame.begin(), frame.end());
      }
      EXPECT_EQ(got, specs);
    }
  }
}

TEST_F(Stream, W4_FramesAreThePlannedBucketsAndPayloadStepsComeInOrder) {
  std::vector<TensorSpec> specs;
  for (const Sent& sent : tensors_) {
    specs.push_back(sent.spec);
  }
  StreamPlan plan = std::move(plan_stream(specs, 64)).take();
  ASSERT_GT(plan.buckets.size(), 3u);
  StreamSender sender(specs, plan, 7);
  size_t headers = 0;
  size_t frame_ends = 0;
  size_t next_tensor = 0;
  while (auto step = std::move(sender.next()).take()) {
    headers += step->part == StreamPart::kHeader;
    frame_ends += sender.at_frame_end();
    if (step->part == StreamPart::kPayload) {
      EXPECT_GE(step->tensor, next_tensor);
      EXPECT_EQ(step->first, 0u);
      EXPECT_EQ(step->nbytes, tensors_[step->tensor].bytes.size());
      EXPECT_GT(step->nbytes, 0u);
      next_tensor = step->tensor + 1;
    }
    if (step->part == StreamPart::kMetadata) {
      EXPECT_LE(step->bytes.size(), plan.metadata_bytes_max);
    }
  }
  EXPECT_EQ(headers, plan.buckets.size() + 1);
  EXPECT_EQ(frame_ends, plan.buckets.size() + 1) << "each bucket, and END";
}

TEST_F(Stream, W9_AModelOfEmptyTensorsAloneIsRefused) {
  const TensorSpec empty{"empty", DType::kF16, {0}};
  EXPECT_EQ(plan_stream({&empty, 1}, 64).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_stream({}, 64).status().code(), Code::kInvalidArgument);
}

// No sender of ours writes a bucket without bytes; others may.
TEST_F(Stream, W9_ABucketWithoutBytesIsRead) {
  const std::vector<TensorSpec> empty = {{"e", DType::kF16, {0, 4}}, {"f", DType::kI8, {0}}};
  std::string metadata;
  ASSERT_TRUE(wire::encode_metadata(empty, metadata).ok());
  Bytes stream = frame({wire::kBucket, static_cast<int64_t>(metadata.size()), 0, 7}, metadata, 0);
  append(stream, stream_);
  StreamReceiver receiver(options(), sink_);
  EXPECT_EQ(feed(receiver, stream, 9), stream.size());
  EXPECT_TRUE(receiver.done());
  EXPECT_TRUE(receiver.result().ok()) << receiver.result().to_string();
  EXPECT_EQ(sink_.frames.at(0), empty);
  EXPECT_EQ(sink_.ends, 1);
}

TEST_F(Stream, R1_AfterAFailureEverythingIsReceivedAndNothingApplied) {
  sink_.fail_at_frame = 2;
  StreamReceiver receiver(options(), sink_);
  EXPECT_EQ(feed(receiver, stream_, 11), stream_.size()) << "drained to END";
  EXPECT_TRUE(receiver.done());
  EXPECT_FALSE(receiver.out_of_step());
  EXPECT_EQ(receiver.result().message(), "no such tensor");
  EXPECT_EQ(sink_.frames.size(), 2u);
  EXPECT_EQ(sink_.ends, 0);
  size_t first_frame = 0;
  for (const TensorSpec& spec : sink_.frames[0]) {
    first_frame += static_cast<size_t>(*byte_count(spec.dtype, spec.shape));
  }
  EXPECT_EQ(sink_.payload.size(), first_frame);
}

TEST_F(Stream, R1_ARefusedBeginStillDrains) {
  StreamReceiver receiver(options(), sink_);
  receiver.fail({Code::kRefused, "stale: 7 < 8"});
  EXPECT_EQ(feed(receiver, stream_), stream_.size());
  EXPECT_EQ(receiver.result().message(), "stale: 7 < 8");
  EXPECT_TRUE(sink_.frames.empty() && sink_.payload.empty());
}

TEST_F(Stream, R1_BadMetadataIsDrainedAndNamesTheFrame) {
  for (const char* metadata : {"", "{}", "[", "[{\"name\":\"a\"}]"}) {
    RecordingSink sink;
    const std::string text = metadata;
    Bytes stream = frame({wire::kBucket, static_cast<int64_t>(text.size()), 5, 7}, text, 5);
    append(stream, stream_);
    StreamReceiver receiver(options(), sink);
    EXPECT_EQ(feed(receiver, stream, 3), stream.size());
    EXPECT_FALSE(receiver.out_of_step());
    EXPECT_EQ(receiver.result().code(), Code::kCorrupt);
    EXPECT_THAT(receiver.result().message(), HasSubstr("frame 1"));
    EXPECT_TRUE(sink.frames.empty());
  }
}

TEST_F(Stream, R2_AnUnknownCommandIsReceivedByItsSizesThenFails) {
  Bytes stream = frame({9, 6, 40, 7}, "abcdef", 40);
  append(stream, stream_);
  StreamReceiver receiver(options(), sink_);
  EXPECT_EQ(feed(receiver, stream, 7), stream.size());
  EXPECT_TRUE(receiver.done());
  EXPECT_FALSE(receiver.out_of_step());
  EXPECT_FALSE(receiver.result().ok());
  EXPECT_TRUE(sink_.frames.empty());
}

TEST_F(Stream, R3_SizesThatCannotBeTrustedPutTheRankOutOfStep) {
  for (const wire::Header& header :
       {wire::Header{wire::kBucket, -1, 5, 7}, wire::Header{wire::kBucket, 5, -1, 7},
        wire::Header{wire::kBucket, 4097, 5, 7}, wire::Header{wire::kBucket, 5, 4097, 7},
        wire::Header{9, 5, INT64_MIN, 7}, wire::Header{wire::kBucket, INT64_MAX, 1, 7}}) {
    RecordingSink sink;
    StreamReceiver receiver(options(), sink);
    const auto bytes = wire::encode_header(header);
    feed(receiver, bytes);
    EXPECT_TRUE(receiver.done());
    EXPECT_TRUE(receiver.out_of_step());
    EXPECT_FALSE(receiver.want());
    EXPECT_FALSE(receiver.result().ok());
  }
}

// A ceiling may be higher than what memory there is. Sanitizers end the process instead of saying
// so, unless told otherwise.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Stream, R3_S3_MemoryThatIsRefusedPutsTheRankOutOfStep) {
  StreamReceiverOptions generous = options();
  generous.metadata_bytes_max = UINT64_MAX;
  for (const int64_t bytes : {int64_t{1} << 60, INT64_MAX}) {
    StreamReceiver receiver(generous, sink_);
    feed(receiver, wire::encode_header({wire::kBucket, bytes, 5, 7}));
    EXPECT_TRUE(receiver.done() && receiver.out_of_step());
    EXPECT_EQ(receiver.result().code(), Code::kExhausted);
    EXPECT_THAT(receiver.result().message(), HasSubstr(std::to_string(bytes)));
  }
}
#endif

TEST_F(Stream, R3_ARoadThatFailsBeforeEndPutsTheRankOutOfStep) {
  for (size_t cut = 0; cut < stream_.size(); cut += 37) {
    RecordingSink sink;
    StreamReceiver receiver(options(), sink);
    ASSERT_EQ(feed(receiver, std::span(stream_).first(cut), 16), cut);
    ASSERT_FALSE(receiver.done());
    receiver.on_road_failure({Code::kUnavailable, "the publisher closed the stream"});
    EXPECT_TRUE(receiver.done() && receiver.out_of_step());
    EXPECT_EQ(receiver.result().code(), Code::kUnavailable);
    receiver.on_bytes(stream_);
    EXPECT_EQ(receiver.payload_bytes(), sink.payload.size()) << "nothing counts after it";
  }
}

TEST_F(Stream, R4_PayloadIsHandedOnWhereItLies) {
  StreamReceiver receiver(options(), sink_);
  size_t at = 0;
  while (auto want = receiver.want()) {
    const auto run = std::span<const std::byte>(stream_).subspan(at, want->bytes);
    sink_.last_run = nullptr;
    receiver.on_bytes(run);
    if (want->part == StreamPart::kPayload) {
      EXPECT_EQ(sink_.last_run, run.data());
    }
    at += run.size();
  }
  EXPECT_TRUE(receiver.result().ok());
}

// What failed is drained, maybe for long; the memory of the frame that failed is not kept for it.
TEST_F(Stream, R4_AKeptErrorHoldsNoBuffer) {
  constexpr size_t kMetadataBytes = 16 << 20;
  StreamReceiverOptions large = options();
  large.metadata_bytes_max = kMetadataBytes;
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const Bytes stream =
      frame({wire::kBucket, kMetadataBytes, 5, 7}, std::string(kMetadataBytes, '['), 5);
  StreamReceiver receiver(large, sink_);
  const size_t before = in_use();
  EXPECT_EQ(feed(receiver, stream), stream.size());
  EXPECT_THAT(receiver.result().message(), HasSubstr("frame 1"));
  EXPECT_LT(in_use(), before + kMetadataBytes / 2);
}

TEST_F(Stream, R6_TheVersionMustBeTheOneExpected) {
  StreamReceiver receiver(options(8), sink_);
  EXPECT_EQ(feed(receiver, stream_), stream_.size());
  EXPECT_FALSE(receiver.result().ok());
  EXPECT_THAT(receiver.result().message(), HasSubstr("7"));
  EXPECT_THAT(receiver.result().message(), HasSubstr("8"));
  EXPECT_TRUE(sink_.frames.empty());
}

TEST_F(Stream, W5_EveryFrameCarriesTheVersionOfTheFirst) {
  Bytes stream(stream_.begin(), stream_.end() - static_cast<long>(wire::kHeaderBytes));
  append(stream, wire::encode_header({wire::kEnd, 0, 0, 8}));
  StreamReceiver receiver(options(std::nullopt), sink_);
  EXPECT_EQ(feed(receiver, stream), stream.size());
  EXPECT_FALSE(receiver.result().ok());
  RecordingSink other;
  StreamReceiver good(options(std::nullopt), other);
  feed(good, stream_);
  EXPECT_TRUE(good.result().ok());
}

TEST_F(Stream, W5_EndEndsTheStreamWhateverItsSizes) {
  Bytes stream(stream_.begin(), stream_.end() - static_cast<long>(wire::kHeaderBytes));
  const size_t end = stream.size() + wire::kHeaderBytes;
  append(stream, wire::encode_header({wire::kEnd, 100, INT64_MAX, 7}));
  append(stream, stream_);
  StreamReceiver receiver(options(), sink_);
  EXPECT_EQ(feed(receiver, stream), end) << "nothing is read after it";
  EXPECT_TRUE(receiver.done());
  EXPECT_FALSE(receiver.out_of_step());
  EXPECT_FALSE(receiver.result().ok());
  EXPECT_EQ(sink_.ends, 0);
}

TEST_F(Stream, R7_TheErrorSaysWhatHadArrived) {
  StreamReceiver receiver(options(), sink_);
  EXPECT_EQ(receiver.position(), "frame 1, header, 0 of 32 bytes");
  feed(receiver, std::span(stream_).first(wire::kHeaderBytes + 10));
  EXPECT_THAT(receiver.position(), HasSubstr("frame 1, metadata, 10 of "));
  receiver.on_road_failure({Code::kDeadline, "waited 10 s"});
  EXPECT_THAT(receiver.result().message(), HasSubstr("frame 1, metadata, 10 of "));
  EXPECT_THAT(receiver.result().message(), HasSubstr("waited 10 s"));
}

TEST_F(Stream, IntoATransactionAndOutOfIt) {
  ToyRank rank;
  const auto weights = toy_weights(rank.plan, 1);
  ASSERT_EQ(rank.transaction->begin({0, 7}, {}, true).kind, update::BeginKind::kReady);
  TransactionSink sink(*rank.transaction);
  StreamReceiver receiver(options(), sink);
  ASSERT_EQ(feed(receiver, stream_, 5), stream_.size());
  ASSERT_TRUE(receiver.result().ok());
  ASSERT_TRUE(rank.transaction->prepare(update::testing::version_digest(tensors_)).ok());
  rank.transaction->finish();
  EXPECT_EQ(rank.live(), rank.cold(weights));
}

}  // namespace
}  // namespace changeover::protocol
