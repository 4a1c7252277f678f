// A rank whose publisher still checks its source (rules U1, R7): live memory that is untouched is
// served until the source is known not to have changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/rank_machine.h"
#include "protocol/rank_machine_testing.h"

namespace changeover::protocol {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using namespace testing;

class RankCheckTest : public RankMachineTest {
 protected:
  explicit RankCheckTest(Mode mode = Mode::kJournal) : RankMachineTest(mode) {
    commit(id(1), 1);
    actions_.clear();
    begin(id(2), 2);
    stream();
    told(true);
  }
  void told(bool checking) {
    receive(SourceDigest{id(2), update::testing::version_digest(tensors(version_)), checking});
  }
  void expect_served() {
    EXPECT_EQ(rank_.fence.try_enter(), (VersionStamp{0, 1}));
    EXPECT_FALSE(rank_.fence.leave());
  }
};

TEST_F(RankCheckTest, R7_ARankThatHasVotedWaitsOn) {
  ASSERT_EQ(sent<Vote>().size(), 1u);
  for (int i = 0; i < 5; ++i) {
    wait(seconds(9));
    told(true);
  }
  EXPECT_EQ(machine_.phase_text(), "prepared");
  told(false);
  EXPECT_EQ(sent<Vote>().size(), 1u);
  wait(seconds(10));
  EXPECT_EQ(machine_.phase_text(), "in_doubt");
  receive(Decision{id(2), true, {}});
  EXPECT_EQ(machine_.updates_committed(), 2u);
}

class ApartRankCheckTest : public RankCheckTest, public ::testing::WithParamInterface<Mode> {
 protected:
  ApartRankCheckTest() : RankCheckTest(GetParam()) {}
};

TEST_P(ApartRankCheckTest, U1_NoFenceRisesBeforeTheSourceIsChecked) {
  for (int i = 0; i < 5; ++i) {
    expect_served();
    EXPECT_EQ(machine_.staged_update(), std::nullopt) << "no boundary is asked for";
    EXPECT_TRUE(sent<Vote>().empty());
    wait(seconds(9));
    told(true);
  }
  told(false);
  if (const auto update = machine_.staged_update()) {
    handle(RankMachine::AtBoundary{*update});
  }
  ASSERT_EQ(sent<Vote>().size(), 1u);
  EXPECT_TRUE(sent<Vote>()[0].ready);
  EXPECT_TRUE(rank_.fence.up());
}

TEST_P(ApartRankCheckTest, R7_APublisherThatSaysNoMoreIsNotWaitedFor) {
  handle(RankMachine::AtBoundary{id(2)});
  EXPECT_TRUE(sent<Vote>().empty());
  wait(seconds(10));
  ASSERT_EQ(sent<Vote>().size(), 1u);
  EXPECT_THAT(sent<Vote>()[0].error.message(),
              HasSubstr("for the publisher's check of its source"));
  expect_served();
}

TEST_P(ApartRankCheckTest, U1_AChangedSourceStopsNothing) {
  receive(Decision{id(2), false, {Code::kAborted, "the source changed"}});
  EXPECT_FALSE(sent<Vote>().at(0).ready);
  expect_served();
}

INSTANTIATE_TEST_SUITE_P(Modes, ApartRankCheckTest, ::testing::Values(Mode::kStaged, Mode::kSwap),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

}  // namespace
}  // namespace changeover::protocol
