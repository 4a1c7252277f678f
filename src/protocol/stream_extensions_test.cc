// Streams that use extensions of the wire, from the sender into a transaction (rules W6, W7, R4).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

StreamReceiverOptions options(uint64_t payload_bytes_max = 4096) {
  StreamReceiverOptions options;
  options.version = 7;
  options.payload_bytes_max = payload_bytes_max;
  options.metadata_bytes_max = 4096;
  return options;
}

class StreamExtensions : public ::testing::Test {
 protected:
  // How a stream ends in a rank whose digests are off, so that only the wire's can tell.
  Status receive(const Bytes& stream, const StreamReceiverOptions& with, size_t run = 1 << 20) {
    EXPECT_EQ(rank_.transaction->begin({0, 7}, {}, false).kind, update::BeginKind::kReady);
    TransactionSink sink(*rank_.transaction);
    StreamReceiver receiver(with, sink);
    EXPECT_EQ(feed(receiver, stream, run), stream.size()) << "drained to END";
    Status status = receiver.result();
    if (status.ok()) {
      status = rank_.transaction->prepare({});
    }
    rank_.transaction->abort({Code::kAborted, "looked at"}, false);
    return status;
  }

  ToyRank rank_;
  const update::testing::Weights weights_ = toy_weights(toy_plan(), 1);
  const std::vector<Sent> tensors_ = all_tensors(toy_plan(), weights_);
};

TEST_F(StreamExtensions, W6_EveryCombinationArrivesHoweverItIsCut) {
  for (int bits = 0; bits < 8; ++bits) {
    const WireExtensions extensions{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    for (const uint64_t bucket : {1u, 5u, 30u, 70u, 100000u}) {
      const Bytes stream = encode_stream(tensors_, bucket, 7, extensions);
      for (const size_t run : {size_t{1}, size_t{13}, size_t{1} << 20}) {
        ToyRank rank;
        ASSERT_EQ(rank.transaction->begin({0, 7}, {}, true).kind, update::BeginKind::kReady);
        TransactionSink sink(*rank.transaction);
        StreamReceiverOptions with = options();
        with.extensions = extensions;
        StreamReceiver receiver(with, sink);
        ASSERT_EQ(feed(receiver, stream, run), stream.size());
        ASSERT_TRUE(receiver.result().ok())
            << receiver.result().to_string() << " bits " << bits << " bucket " << bucket;
        const Status prepared =
            rank.transaction->prepare(update::testing::version_digest(tensors_));
        ASSERT_TRUE(prepared.ok()) << prepared.to_string();
        rank.transaction->finish();
        EXPECT_EQ(rank.live(), rank.cold(weights_));
      }
    }
  }
}

TEST_F(StreamExtensions, R4_W6_WithSlicesNoFrameIsLargerThanABucket) {
  constexpr uint64_t kBucket = 64;
  const WireExtensions slices{.slices = true};
  EXPECT_TRUE(receive(encode_stream(tensors_, kBucket, 7, slices), options(kBucket)).ok());
  std::vector<TensorSpec> specs;
  for (const Sent& sent : tensors_) {
    specs.push_back(sent.spec);
  }
  EXPECT_EQ(plan_stream(specs, kBucket, slices)->payload_bytes_max, kBucket);
  EXPECT_GT(plan_stream(specs, kBucket)->payload_bytes_max, kBucket) << "plain: a large bucket";
}

TEST_F(StreamExtensions, W6_W7_AWrongDigestNamesTheTensor) {
  for (const bool slices : {false, true}) {
    Bytes stream = encode_stream(tensors_, 64, 7, {.xxh3 = true, .slices = slices});
    ASSERT_TRUE(receive(stream, options()).ok());
    stream[stream.size() - wire::kHeaderBytes - 1] ^= std::byte{1};  // The last tensor's last byte.
    const Status status = receive(stream, options(), 11);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("tensor \"scale\": its bytes have digest"));
    EXPECT_THAT(status.message(), HasSubstr("(W6)"));
  }
}

TEST_F(StreamExtensions, W6_W7_ADamagedPartFailsItsTensorByName) {
  // "embed.weight", the first tensor, is split; the first payload byte of all is its.
  Bytes stream = encode_stream(tensors_, 64, 7, {.xxh3 = true, .slices = true});
  const wire::Header header =
      wire::decode_header(std::span<const std::byte>(stream).first<wire::kHeaderBytes>());
  stream[wire::kHeaderBytes + static_cast<size_t>(header.metadata_bytes)] ^= std::byte{1};
  EXPECT_THAT(receive(stream, options()).message(),
              HasSubstr("tensor \"embed.weight\": its bytes"));
}

// A frame of part [first, first + nbytes) of "embed.weight", bfloat16 [14,5].
Bytes part(uint64_t first, uint64_t nbytes) {
  const wire::Entry entry{
      {"embed.weight", DType::kBF16, {14, 5}}, 0, nbytes, TensorSlice{first, 140}, std::nullopt};
  std::string metadata;
  EXPECT_TRUE(wire::encode_metadata(std::span(&entry, 1), metadata).ok());
  return frame(
      {wire::kBucket, static_cast<int64_t>(metadata.size()), static_cast<int64_t>(nbytes), 7},
      metadata, nbytes);
}

Bytes joined(std::initializer_list<Bytes> frames) {
  Bytes stream;
  for (const Bytes& bytes : frames) {
    append(stream, bytes);
  }
  append(stream, wire::encode_header({wire::kEnd, 0, 0, 7}));
  return stream;
}

TEST_F(StreamExtensions, W6_W7_PartsOutOfOrderOverlappingOrMissingFailAtEnd) {
  EXPECT_THAT(receive(joined({part(0, 40), part(80, 60)}), options()).message(),
              HasSubstr("frame 2: tensor \"embed.weight\": its part from byte 80 is out of order"));
  EXPECT_THAT(receive(joined({part(80, 60), part(0, 80)}), options()).message(),
              HasSubstr("its part from byte 80 is out of order, none came before it"));
  EXPECT_THAT(receive(joined({part(0, 40), part(20, 120)}), options()).message(),
              HasSubstr("its part from byte 20 overlaps those that came, up to byte 40"));
  EXPECT_THAT(receive(joined({part(0, 40), part(40, 40)}), options()).message(),
              HasSubstr("END came before its part from byte 80 of 140"));
  EXPECT_THAT(receive(joined({part(0, 140), part(0, 140)}), options()).message(),
              HasSubstr("\"embed.weight\""))
      << "whole, and again: it would land twice (rule T4)";
}

TEST_F(StreamExtensions, W6_ARankThatDeclaredNoneTakesTheStreamForPlain) {
  StreamReceiverOptions plain = options();
  plain.extensions = {};
  EXPECT_TRUE(receive(encode_stream(tensors_, 64, 7), plain).ok());
  EXPECT_EQ(receive(encode_stream(tensors_, 64, 7, {.slices = true}), plain).code(),
            Code::kCorrupt);
  EXPECT_TRUE(receive(encode_stream(tensors_, 64, 7, {.xxh3 = true}), plain).ok())
      << "a key that it does not know";
}

}  // namespace
}  // namespace changeover::protocol
