#include "control/codec.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/control.pb.h"

namespace changeover::control {
namespace {

using ::testing::HasSubstr;
namespace pb = changeover::control::v1;

Result<protocol::Message> decode(const pb::Envelope& envelope) {
  std::vector<uint8_t> bytes(envelope.ByteSizeLong());
  envelope.SerializeWithCachedSizesToArray(bytes.data());
  return control::decode(bytes);
}

protocol::Hello hello() {
  protocol::Hello out;
  out.job = "run-7";
  out.rank = {"engine-a", 2};
  out.engine_size = 3;
  out.incarnation.bytes = {1, 2, 3};
  out.mode = Mode::kInPlace;
  out.version = VersionStamp{1, 41};
  out.digest = Digest{{9, 8, 7}};
  out.fenced = true;
  out.gate_open = true;
  out.prepared = UpdateId{{{4, 5}}, 17};
  out.plan_digest.bytes = {6};
  out.plan_generation = 12;
  out.capabilities = {"in_place", "stream"};
  out.payload_bytes_max = 1ull << 40;
  out.metadata_bytes_max = 1 << 20;
  out.host = "höst";
  out.pid = 4711;
  return out;
}

RankReport report() {
  RankReport out;
  out.rank = {"engine-a", 2};
  out.incarnation.bytes = {1};
  out.outcome = RankOutcome::kRestored;
  out.version_before = VersionStamp{0, 1};
  out.version = VersionStamp{0, 2};
  out.digest = Digest{{5}};
  out.digest_checked = true;
  out.mode = Mode::kInPlace;
  out.way = "stream";
  out.road = "shm";
  out.road_reason = "same host";
  out.pieces_expected = 1;
  out.pieces_landed = 2;
  out.pieces_derived = 3;
  out.bytes_received = 4;
  out.bytes_written = 5;
  out.mode_memory_bytes = 17;
  out.buckets = 6;
  out.seconds = {1, 2, 3, 4, 5, 6};
  out.cache_policy = "flush";
  out.cache_result = "flushed 3";
  out.fenced = true;
  out.error = Status(Code::kAborted, "rank 1 died");
  return out;
}

bool same(const Status& a, const Status& b) {
  return a.code() == b.code() && a.message() == b.message();
}

template <typename T>
T round_trip(const T& value) {
  const auto bytes = encode(value);
  auto out = control::decode(bytes);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_TRUE(std::holds_alternative<T>(*out));
  EXPECT_EQ(encode(*out), bytes) << "a field was lost";
  return std::get<T>(*out);
}

TEST(Codec, HelloKeepsEveryField) {
  const auto in = hello();
  const auto out = round_trip(in);
  EXPECT_EQ(out.job, in.job);
  EXPECT_EQ(out.rank, in.rank);
  EXPECT_EQ(out.engine_size, 3);
  EXPECT_EQ(out.incarnation, in.incarnation);
  EXPECT_EQ(out.mode, in.mode);
  EXPECT_EQ(out.version, in.version);
  EXPECT_EQ(out.digest, in.digest);
  EXPECT_TRUE(out.fenced && out.gate_open);
  EXPECT_EQ(out.prepared, in.prepared);
  EXPECT_EQ(out.plan_digest, in.plan_digest);
  EXPECT_EQ(out.plan_generation, 12u);
  EXPECT_EQ(out.capabilities, in.capabilities);
  EXPECT_EQ(out.payload_bytes_max, in.payload_bytes_max);
  EXPECT_EQ(out.metadata_bytes_max, in.metadata_bytes_max);
  EXPECT_EQ(out.host, in.host);
  EXPECT_EQ(out.pid, in.pid);
}

TEST(Codec, T1_NoneIsAStateOfItsOwn) {
  protocol::Hello in;
  EXPECT_FALSE(round_trip(in).version.has_value());
  in.version = VersionStamp{0, 0};
  EXPECT_EQ(round_trip(in).version, (VersionStamp{0, 0}));
  EXPECT_FALSE(round_trip(protocol::SourceDigest{}).digest.has_value());
}

TEST(Codec, V2_VoteKeepsEveryField) {
  const protocol::Vote in{{{{1}}, 3},  true,           true,  true,    {2, 3},
                          Digest{{7}}, Mode::kInPlace, {{8}}, Status()};
  const auto out = round_trip(in);
  EXPECT_EQ(out.id, in.id);
  EXPECT_TRUE(out.ready && out.began && out.wrote);
  EXPECT_EQ(out.version, in.version);
  EXPECT_EQ(out.digest, in.digest);
  EXPECT_EQ(out.mode, in.mode);
  EXPECT_EQ(out.incarnation, in.incarnation);
}

TEST(Codec, T14_ReportKeepsEveryField) {
  const protocol::Finished in{{{{1}}, 3}, {{2}}, report()};
  const auto out = round_trip(in).report;
  EXPECT_EQ(out.outcome, RankOutcome::kRestored);
  EXPECT_EQ(out.version_before, in.report.version_before);
  EXPECT_EQ(out.version, in.report.version);
  EXPECT_EQ(out.digest, in.report.digest);
  EXPECT_EQ(out.seconds.pause, 6);
  EXPECT_EQ(out.seconds.begin, 1);
  EXPECT_EQ(out.buckets, 6u);
  EXPECT_EQ(out.pieces_derived, 3u);
  EXPECT_EQ(out.cache_result, "flushed 3");
  EXPECT_TRUE(same(out.error, in.report.error));
}

TEST(Codec, EveryOtherMessageComesBack) {
  const UpdateId id{{{1}}, 3};
  const Status why(Code::kRefused, "stale version 3 < 7");
  EXPECT_EQ(round_trip(protocol::Welcome{{{5}}}).coordinator.bytes[0], 5);
  const auto refused = round_trip(protocol::HelloRefused{why, true});
  EXPECT_TRUE(refused.retry && same(refused.why, why));
  const auto begin = round_trip(protocol::Begin{id, {1, 2}, Digest{{3}}, false, 4, 5, 6, 7});
  EXPECT_EQ(begin.stream_id, 6u);
  EXPECT_EQ(begin.payload_bytes_total, 7u);
  EXPECT_FALSE(begin.digests_on);
  const auto reply =
      round_trip(protocol::BeginReply{id, {{2}}, protocol::BeginKind::kNeedDigest, why});
  EXPECT_EQ(reply.kind, protocol::BeginKind::kNeedDigest);
  EXPECT_TRUE(round_trip(protocol::SourceDigest{id, {}, true}).checking);
  const auto decision = round_trip(protocol::Decision{id, true, why});
  EXPECT_TRUE(decision.commit && same(decision.reason, why));
  EXPECT_EQ(round_trip(protocol::Release{{1, 9}}).version, (VersionStamp{1, 9}));
}

TEST(Codec, CaseB56_UnknownTypesAreRefusedByName) {
  const std::vector<uint8_t> field_99 = {0x9A, 0x06, 0x00};  // field 99, an empty message
  const auto out = control::decode(field_99);
  EXPECT_EQ(out.status().code(), Code::kCorrupt);
  EXPECT_THAT(out.status().message(), HasSubstr("unknown type (field number 99)"));
  EXPECT_THAT(control::decode({}).status().message(), HasSubstr("no field"));
}

TEST(Codec, CaseB56_ForeignBytesAreRefused) {
  for (const std::string text : {"\x80\x04\x95\x10", "GET / HTTP/1.1\r\n\r\n", "{\"a\":1}"}) {
    const auto out = control::decode({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    EXPECT_FALSE(out.ok()) << text;
  }
}

TEST(Codec, S2_EveryLengthHasACeiling) {
  pb::Envelope envelope;
  ASSERT_TRUE(envelope.ParseFromString([] {
    const auto b = encode(hello());
    return std::string(b.begin(), b.end());
  }()));
  ASSERT_TRUE(decode(envelope).ok());
  auto refused = [](const pb::Envelope& bad) { return decode(bad).status().message(); };
  auto bad = envelope;
  bad.mutable_hello()->set_job(std::string(kNameBytesMax + 1, 'x'));
  EXPECT_THAT(refused(bad), HasSubstr("hello: job has 257 bytes, at most 256"));
  bad = envelope;
  for (size_t i = 0; i < kCapabilitiesMax; ++i) {
    bad.mutable_hello()->add_capabilities("x");
  }
  EXPECT_THAT(refused(bad), HasSubstr("hello: count of capabilities is 66, not 0 to 64"));
  bad = envelope;
  bad.mutable_hello()->set_incarnation("short");
  EXPECT_THAT(refused(bad), HasSubstr("hello: incarnation has 5 bytes, not 16"));
  bad = envelope;
  bad.mutable_hello()->set_mode(9);
  EXPECT_THAT(refused(bad), HasSubstr("hello: mode is 9, not 0 to 3"));
  bad = envelope;
  bad.mutable_hello()->set_engine_size(0);
  EXPECT_THAT(refused(bad), HasSubstr("engine_size is 0"));
  bad = envelope;
  bad.mutable_hello()->mutable_rank()->set_rank(-1);
  EXPECT_THAT(refused(bad), HasSubstr("rank.rank is -1"));
  bad = envelope;
  bad.mutable_hello()->clear_rank();
  EXPECT_THAT(refused(bad), HasSubstr("rank is missing"));
  bad = envelope;
  bad.mutable_hello()->mutable_version()->set_version(-2);
  EXPECT_THAT(refused(bad), HasSubstr("version is -2"));
}

// What a rank says ends up in the publisher's report, which its own parser must be able to read.
TEST(Codec, S3_T14_NumbersThatNoReportCanHoldAreRefused) {
  const auto refused = [](const RankReport& bad) {
    return control::decode(encode(protocol::Finished{{{{1}}, 3}, {{2}}, bad})).status().message();
  };
  EXPECT_EQ(refused(report()), "");
  for (const double number : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    RankReport bad = report();
    bad.seconds.pause = number;
    EXPECT_THAT(refused(bad), HasSubstr("report.seconds.pause is no finite number"));
    bad = report();
    bad.seconds.begin = number;
    EXPECT_THAT(refused(bad), HasSubstr("report.seconds.begin"));
  }
  RankReport bad = report();
  bad.bytes_written = UINT64_MAX;
  EXPECT_THAT(refused(bad), HasSubstr("report.bytes_written is 18446744073709551615"));
}

TEST(Codec, AnErrorAlwaysGetsThrough) {
  std::string text(kTextBytesMax - 1, 'x');
  text += "\xC3\xA9 and more";  // a two-byte character across the ceiling
  const auto cut = round_trip(protocol::HelloRefused{Status(Code::kCorrupt, text), false});
  EXPECT_EQ(cut.why.message(), std::string(kTextBytesMax - 1, 'x'));
  const auto bad = round_trip(protocol::HelloRefused{Status(Code::kCorrupt, "a\xFF"), false});
  EXPECT_EQ(bad.why.message(), "a?");
}

}  // namespace
}  // namespace changeover::control
