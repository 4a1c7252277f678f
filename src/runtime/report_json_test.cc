#include <changeover/report.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace changeover {
namespace {

using ::testing::HasSubstr;

UpdateReport report() {
  UpdateReport out;
  out.id = {{{1, 2}}, 9};
  out.version = {1, 7};
  out.digest = Digest{{3}};
  out.status = Status(Code::kAborted, "rank \"a\"/1 died");
  out.seconds = 1.5;
  out.payload_bytes = 1ull << 40;
  out.buckets = 12;
  RankReport rank;
  rank.rank = {"a", 1};
  rank.incarnation.bytes = {4};
  rank.outcome = RankOutcome::kRestored;
  rank.version_before = VersionStamp{0, 6};
  rank.version = VersionStamp{0, 6};
  rank.mode = Mode::kInPlace;
  rank.way = "stream";
  rank.road = "shm";
  rank.road_reason = "why";
  rank.pieces_expected = 5;
  rank.pieces_landed = 3;
  rank.bytes_written = 77;
  rank.mode_memory_bytes = 99;
  rank.seconds.pause = 0.25;
  rank.cache_policy = "flush";
  rank.cache_result = "done";
  rank.fenced = true;
  rank.error = Status(Code::kDeadline, "waited");
  out.ranks = {rank, RankReport{}};
  return out;
}

TEST(ReportJson, T14_ComesBackWhole) {
  const std::string text = update_report_to_json(report());
  const auto back = parse_update_report(text);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(update_report_to_json(*back), text);
  EXPECT_EQ(back->ranks[0].outcome, RankOutcome::kRestored);
  EXPECT_EQ(back->ranks[0].error.message(), "waited");
  EXPECT_EQ(back->ranks[0].seconds.pause, 0.25);
  EXPECT_FALSE(back->ranks[1].version.has_value());
  EXPECT_EQ(back->version, (VersionStamp{1, 7}));
  EXPECT_EQ(back->payload_bytes, 1ull << 40);
}

TEST(ReportJson, EveryOutcomeHasAName) {
  for (int i = 0; i <= int(RankOutcome::kLeftOut); ++i) {
    UpdateReport in = report();
    in.ranks[0].outcome = static_cast<RankOutcome>(i);
    EXPECT_EQ(parse_update_report(update_report_to_json(in))->ranks[0].outcome,
              in.ranks[0].outcome);
  }
}

TEST(ReportJson, S3_WhatIsMissingOrWrongIsNamed) {
  const std::string good = update_report_to_json(report());
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return parse_update_report(text).status().message();
  };
  EXPECT_THAT(broken("\"format\":1", "\"format\":2"), HasSubstr("$.format"));
  EXPECT_THAT(broken("\"restored\"", "\"maybe\""), HasSubstr("ranks[0].outcome is unknown"));
  EXPECT_THAT(broken("\"buckets\"", "\"bucket\""), HasSubstr("$.buckets is missing"));
  EXPECT_THAT(broken("\"deadline\"", "\"dead\""), HasSubstr("has an unknown code"));
  EXPECT_FALSE(parse_update_report("[]").ok());
  EXPECT_FALSE(parse_update_report(good.substr(0, good.size() - 1)).ok());
}

}  // namespace
}  // namespace changeover
