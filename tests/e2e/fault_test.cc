// Roads that flip a bit, break off or stand still under a whole engine: every such update is given
// up whole, and the next one commits (rules R3, T8, T11, U2, V1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/kit.h"
#include "tests/e2e/proxy.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using transport::FaultKind;
using transport::FaultPlan;

class FaultyRoad : public testing::TestWithParam<Mode> {
 protected:
  FaultyRoad() {
    auto options = publisher_options("tcp");
    options.deadlines = short_deadlines();
    publisher_ = open_publisher(options);
    proxy_.emplace(publisher_->endpoint());
    for (int index = 0; index < 2; ++index) {
      RankOptions rank;
      rank.rank = index;
      rank.tp = 2;
      rank.mode = GetParam();
      rank.subscriber.deadlines = short_deadlines();
      rank.subscriber.deadlines.stall = 5s;  // The publisher's deadline for the vote comes first.
      ranks_.push_back(std::make_unique<Rank>(model_, proxy_->endpoint(), rank));
    }
  }
  UpdateReport publish(int64_t version, uint64_t bucket) {
    auto report = publisher_->publish(*model_.source(version), publish_options(version, 2, bucket));
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *std::move(report) : UpdateReport();
  }
  void expect_new(int64_t version) {
    const auto report = publish(version, 1 << 20);
    EXPECT_TRUE(report.status.ok()) << report.status.to_string();
    for (auto& rank : ranks_) {
      EXPECT_TRUE(rank->serves(version));
      EXPECT_TRUE(rank->holds(version));
    }
  }
  // The version before, whole; or, in place, a fence that says why.
  void expect_given_up(int64_t before) {
    for (auto& rank : ranks_) {
      // A rank that was let go may still be putting the old bytes back.
      if (GetParam() != Mode::kInPlace || (*rank)->fence().acquire(0s).ok()) {
        EXPECT_TRUE(rank->serves(before));
        EXPECT_TRUE(rank->holds(before));
      }
    }
  }

  const Model model_{true};
  std::unique_ptr<Publisher> publisher_;
  std::optional<Proxy> proxy_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_P(FaultyRoad, U2_T8_T11_AFlippedBitIsFoundByTheDigest) {
  expect_new(1);
  proxy_->plan({FaultKind::kFlipBit, model_.payload_bytes() / 2 + 3000, 0, 5});
  const auto report = publish(2, 1 << 20);
  EXPECT_TRUE(proxy_->struck());
  EXPECT_EQ(report.status.code(), Code::kAborted);
  EXPECT_THAT(report.status.message(), HasSubstr("digest"));
  ASSERT_EQ(report.ranks.size(), 2u);
  for (const RankReport& rank : report.ranks) {
    EXPECT_EQ(rank.outcome,
              GetParam() == Mode::kInPlace ? RankOutcome::kFenced : RankOutcome::kRestored);
  }
  expect_given_up(1);
  expect_new(3);
}

TEST_P(FaultyRoad, R3_V1_AnyFaultIsGivenUpWholeAndTheNextUpdateCommits) {
  int64_t version = 1;
  expect_new(version);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const FaultPlan fault = transport::fault_from_seed(seed, model_.payload_bytes(), 1);
    SCOPED_TRACE(fault.to_string());
    proxy_->plan(fault);
    const auto report = publish(version + 1, seed % 2 == 0 ? 1 : 4096);
    EXPECT_TRUE(proxy_->struck());
    EXPECT_FALSE(report.status.ok());
    EXPECT_THAT(report.status.message(), HasSubstr("a/"));
    expect_given_up(version);
    version += 2;
    expect_new(version);
  }
}

// Case N15: the data connection of one rank stands still while its control connection lives. That
// costs the update it happens in, and no other: the trainer publishes again at once.
TEST_P(FaultyRoad, V5_CaseN15_ADataConnectionThatStandsStillCostsOneUpdate) {
  expect_new(1);
  for (int64_t version = 1; version < 10; version += 3) {
    proxy_->plan({FaultKind::kStall, model_.payload_bytes() / 2, 0, 0});
    const auto report = publish(version + 1, 4096);
    EXPECT_TRUE(proxy_->struck());
    EXPECT_THAT(report.status.message(), HasSubstr("for its vote"));
    expect_new(version + 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultyRoad,
                         testing::Values(Mode::kJournal, Mode::kInPlace, Mode::kStaged,
                                         Mode::kSwap),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

}  // namespace
}  // namespace changeover::e2e
