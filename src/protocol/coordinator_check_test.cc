// A source that may change is read again after its last copy: ranks vote meanwhile, and only the
// commit waits for it (rules U1, U2, R7).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/coordinator.h"
#include "protocol/coordinator_testing.h"

namespace changeover::protocol {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using namespace testing;

class SourceCheckTest : public CoordinatorTest {
 protected:
  SourceCheckTest() {
    a0_ = connect(hello("a", 0));
    a1_ = connect(hello("a", 1));
    start();
    reply(a0_);
    reply(a1_);
    Coordinator::StreamEnded ended{{}, digest(2), 100, 3, true};
    handle(ended);
  }
  ConnectionId a0_ = 0;
  ConnectionId a1_ = 0;
};

TEST_F(SourceCheckTest, U1_U2_TheDigestGoesOutAtEndAndOnlyTheCommitWaits) {
  EXPECT_EQ(sent<SourceDigest>(a0_).at(0).digest, digest(2));
  vote(a0_);
  vote(a1_);
  EXPECT_TRUE(sent<Decision>(a0_).empty());
  handle(Coordinator::SourceChecked{});
  EXPECT_TRUE(sent<Decision>(a0_).at(0).commit);
  EXPECT_TRUE(sent<Decision>(a1_).at(0).commit);
  finished(a0_);
  finished(a1_);
  EXPECT_TRUE(report().status.ok());
}

TEST_F(SourceCheckTest, U1_AnUnchangedSourceIsNoYes) {
  handle(Coordinator::SourceChecked{});
  vote(a0_);
  EXPECT_TRUE(sent<Decision>(a0_).empty());
  vote(a1_);
  EXPECT_TRUE(sent<Decision>(a0_).at(0).commit);
}

TEST_F(SourceCheckTest, U1_ASourceThatChangedAbortsEveryEngine) {
  vote(a0_);
  handle(Coordinator::SourceChecked{{Code::kAborted, "the source changed"}});
  EXPECT_FALSE(sent<Decision>(a0_).at(0).commit);
  vote(a1_);
  EXPECT_FALSE(sent<Decision>(a1_).back().commit);
  finished(a0_, false);
  finished(a1_, false);
  EXPECT_EQ(report().status.message(), "the source changed");
}

// A check that takes longer than the vote may: no rank is late, and each that waits is told so.
TEST_F(SourceCheckTest, R7_AReadThatGoesOnIsWaitedForAndRanksAreTold) {
  vote(a0_);
  vote(a1_);
  for (int i = 0; i < 20; ++i) {
    wait(seconds(3));
    handle(Coordinator::SourceRead{});
    EXPECT_EQ(sent<SourceDigest>(a0_).size(), static_cast<size_t>(i) + 2);
    handle(Coordinator::SourceRead{});
  }
  EXPECT_TRUE(sent<Decision>(a0_).empty());
  EXPECT_TRUE(actions<Coordinator::CloseConnection>().empty());
  EXPECT_EQ(sent<SourceDigest>(a1_).size(), 21u) << "a few, however often bytes are read";
  handle(Coordinator::SourceChecked{});
  EXPECT_TRUE(sent<Decision>(a1_).at(0).commit);
}

TEST_F(SourceCheckTest, R7_AReadThatStandsStillEndsTheUpdateByItsOwnName) {
  vote(a0_);
  vote(a1_);
  wait(seconds(9));
  handle(Coordinator::SourceRead{});
  EXPECT_EQ(coordinator_.deadline(), now_ + seconds(1)) << "of the votes";
  wait(seconds(1));
  EXPECT_TRUE(sent<Decision>(a0_).empty()) << "both have voted: nobody is late";
  wait(seconds(9));
  EXPECT_FALSE(sent<Decision>(a0_).at(0).commit);
  EXPECT_THAT(sent<Decision>(a0_)[0].reason.message(),
              HasSubstr("waited 10000 ms for the publisher's own check of its source"));
  finished(a0_, false);
  finished(a1_, false);
  EXPECT_EQ(report().status.code(), Code::kDeadline);
  handle(Coordinator::SourceChecked{});  // Too late: nothing changes.
  EXPECT_EQ(sent<Decision>(a0_).size(), 1u);
}

TEST_F(SourceCheckTest, R7_ARankThatDoesNotVoteIsLateAllTheSame) {
  vote(a0_);
  wait(seconds(9));
  handle(Coordinator::SourceRead{});
  wait(seconds(1));
  EXPECT_THAT(sent<Decision>(a0_).at(0).reason.message(),
              HasSubstr("a/1: waited 10000 ms for its vote"));
  finished(a0_, false);
  ASSERT_TRUE(is_done()) << "the check is not waited for where nobody commits";
  EXPECT_EQ(coordinator_.deadline(), Instant::never());
  handle(Coordinator::SourceRead{});
  handle(Coordinator::SourceChecked{});
}

}  // namespace
}  // namespace changeover::protocol
