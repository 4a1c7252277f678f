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
  explicit SourceCheckTest(Mode mode = Mode::kJournal) {
    for (const int32_t rank : {0, 1}) {
      Hello with = hello("a", rank);
      with.mode = mode;
      (rank == 0 ? a0_ : a1_) = connect(with);
    }
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
  EXPECT_TRUE(sent<SourceDigest>(a0_)[0].checking);
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

// In these modes ranks serve on until the source is known not to have changed, and vote then.
class ApartCheckTest : public SourceCheckTest {
 protected:
  ApartCheckTest() : SourceCheckTest(Mode::kSwap) {}
  void vote_apart(ConnectionId id) {
    Vote vote;
    vote.id = coordinator_.update();
    vote.ready = true;
    vote.version = kV2;
    vote.digest = digest(2);
    vote.mode = Mode::kSwap;
    vote.incarnation = ranks_[id].incarnation;
    handle(Coordinator::Received{id, vote});
  }
};

TEST_F(ApartCheckTest, R7_WhoServesOnIsNotLateBeforeTheSourceIsChecked) {
  for (int i = 0; i < 10; ++i) {
    wait(seconds(4));
    handle(Coordinator::SourceRead{});
  }
  EXPECT_TRUE(actions<Coordinator::CloseConnection>().empty());
  EXPECT_TRUE(sent<SourceDigest>(a0_).back().checking);
  handle(Coordinator::SourceChecked{});
  EXPECT_FALSE(sent<SourceDigest>(a0_).back().checking);
  EXPECT_EQ(coordinator_.deadline(), now_ + seconds(10));
  vote_apart(a0_);
  wait(seconds(9));
  vote_apart(a1_);
  EXPECT_TRUE(sent<Decision>(a0_).at(0).commit);
}

TEST_F(ApartCheckTest, R7_AndIsLateAfterThat) {
  wait(seconds(9));
  handle(Coordinator::SourceChecked{});
  vote_apart(a0_);
  wait(seconds(10));
  EXPECT_THAT(sent<Decision>(a0_).at(0).reason.message(),
              HasSubstr("a/1: waited 10000 ms for its vote"));
}

}  // namespace
}  // namespace changeover::protocol
