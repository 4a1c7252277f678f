// A rank whose peers are late, or make no sense (cases B60, N15).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/rank_machine.h"
#include "protocol/rank_machine_testing.h"

namespace changeover::protocol {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using namespace testing;
using update::testing::Sent;

// Case N15: the decision comes twice its deadline late; nobody guessed, and the next one commits.
TEST_F(RankMachineTest, CaseN15_ALateDecisionIsHeldAndTheNextUpdateCommits) {
  for (bool committed : {false, true}) {
    const uint64_t counter = committed ? 20 : 10;
    const auto number = static_cast<int64_t>(counter);
    commit(id(counter), number);
    prepare(id(counter + 1), number + 1);
    wait(seconds(10));
    wait(seconds(10));
    EXPECT_TRUE(rank_.transaction->prepared());
    receive(Decision{id(counter + 1), committed, {}});
    EXPECT_EQ(rank_.live(), cold(committed ? number + 1 : number));
    commit(id(counter + 2), number + 2);
    EXPECT_EQ(rank_.live(), cold(number + 2));
    EXPECT_TRUE(rank_.fence.open());
  }
}

// Case B60, the machine's part: a step that never ends fails the update, and the old version stays.
TEST_F(RankMachineTest, CaseB60_AnEndlessStepFailsTheUpdateAndTheOldVersionStays) {
  commit(id(1), 1);
  ASSERT_TRUE(rank_.fence.try_enter());
  begin(id(2), 2);
  stream();
  EXPECT_EQ(sent<Vote>().back().error.code(), Code::kDeadline);
  EXPECT_FALSE(sent<Vote>().back().wrote);
  EXPECT_EQ(rank_.live(), cold(1));
  EXPECT_FALSE(rank_.fence.leave());
  EXPECT_EQ(rank_.fence.try_enter(), (VersionStamp{0, 1}));
}

TEST_F(RankMachineTest, WhatMakesNoSenseEndsTheConnectionAndHarmsNothing) {
  commit(id(1), 1);
  actions_.clear();
  receive(Welcome{incarnation(9)});
  EXPECT_EQ(actions<RankMachine::CloseConnection>().size(), 1u);
  connect();
  receive(Vote{});
  EXPECT_EQ(actions<RankMachine::CloseConnection>().size(), 2u);
  handle(RankMachine::Connected{});
  receive(Release{{0, 1}});
  EXPECT_EQ(actions<RankMachine::CloseConnection>().size(), 3u) << "before the welcome";
  connect();
  begin(id(2), 2);
  receive(Decision{id(2), true, {}});
  EXPECT_EQ(actions<RankMachine::CloseConnection>().size(), 4u) << "commit without a vote";
  EXPECT_EQ(rank_.live(), cold(1));
  EXPECT_TRUE(rank_.fence.open());
  handle(RankMachine::Connected{});
  receive(HelloRefused{{Code::kRefused, "job"}, false});
  EXPECT_FALSE(actions<RankMachine::CloseConnection>().back().retry);
}

}  // namespace
}  // namespace changeover::protocol
