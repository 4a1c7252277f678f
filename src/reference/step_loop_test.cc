// The loop over real sockets and threads; the engine's ranks share this process.
#include "reference/step_loop.h"

#include <set>

#include <gtest/gtest.h>

#include "os/clock.h"
#include "os/entropy.h"
#include "os/local_socket.h"
#include "os/poll.h"
#include "os/socket.h"
#include "reference/fake_testing.h"
#include "reference/step_link.h"

namespace changeover::reference {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = 3;

PassResult idle_pass(uint64_t, uint32_t) {
  return {};
}

class StepLoopTest : public testing::Test {
 protected:
  StepLoopTest() { socket_ = "changeover.test." + os::draw_incarnation()->to_text(); }

  StepLoopOptions options(int rank, const std::string& engine = "a") const {
    StepLoopOptions options;
    options.socket = socket_;
    options.follower.identity = {"job", engine, rank, kRanks, *os::draw_incarnation()};
    options.follower.guard_timeout = milliseconds(400);
    options.follower.dial_back_off_max = milliseconds(50);
    options.conductor.interval = milliseconds(2);
    options.conductor.hello_timeout = milliseconds(100);
    options.conductor.answer_timeout = milliseconds(200);
    return options;
  }
  void start(int rank) {
    StepWorker::Engine engine{fences_[rank], {}, {}, {}};
    engine.pass = [this, rank](uint64_t step, uint32_t) {
      if (rank == hold_rank_) {
        eventually([this] { return hold_rank_ < 0; });
      }
      return PassResult{step % 1 + 7, 0};
    };
    engine.staged = [this, rank]() -> std::optional<VersionStamp> {
      const int64_t version = staged_[rank];
      return version == 0 ? std::nullopt : std::optional(VersionStamp{0, version});
    };
    engine.change_over = [this, rank](auto timeout) { return change_over(rank, timeout); };
    auto loop = StepLoop::start(options(rank), std::move(engine));
    ASSERT_TRUE(loop.ok()) << loop.status().to_string();
    loops_[rank] = std::move(loop).take();
  }
  void start_all(int64_t version) {
    for (int rank = 0; rank < kRanks; ++rank) {
      fences_[rank].lower({0, version});
      start(rank);
    }
  }
  // Waits until this rank has run `steps` more.
  bool steps_on(int rank, uint64_t steps = 5) {
    const uint64_t before = loops_[rank]->status().run;
    return eventually([&] { return loops_[rank]->status().run >= before + steps; });
  }
  Status change_over(int rank, std::chrono::nanoseconds timeout) {
    if (const int64_t version = staged_[rank].exchange(0); version != 0) {
      fences_[rank].raise("changing over");
      ++changes_;
      fences_[rank].lower({0, version});
    }
    return fences_[rank].acquire(timeout).status();
  }
  std::string waiting(int rank = 0) const { return loops_[rank]->status().waiting_for; }
  bool waits_for(int rank, const std::string& text) const {
    return eventually([&] { return waiting(rank).find(text) != std::string::npos; });
  }

  std::string socket_;
  FakeFence fences_[kRanks];
  std::unique_ptr<StepLoop> loops_[kRanks];
  std::atomic<int> hold_rank_ = -1;
  std::atomic<int64_t> staged_[kRanks] = {};  // 0: none
  std::atomic<int> changes_ = 0;
};

TEST_F(StepLoopTest, V6_AllRanksRunTheSameStepsOnTheSameVersions) {
  start_all(1);
  for (int64_t version = 2; version <= 6; ++version) {
    EXPECT_TRUE(steps_on(1)) << waiting();
    for (FakeFence& fence : fences_) {
      fence.raise("receiving");
    }
    for (FakeFence& fence : fences_) {
      fence.lower({0, version});
    }
  }
  EXPECT_TRUE(steps_on(2)) << waiting();
  std::map<uint64_t, std::set<int64_t>> versions;
  std::map<uint64_t, int> ranks;
  for (const auto& loop : loops_) {
    for (const StepRecord& record : loop->status().recent) {
      versions[record.step].insert(record.version.version);
      ++ranks[record.step];
    }
  }
  EXPECT_GT(versions.size(), 20u);
  for (const auto& [step, seen] : versions) {
    EXPECT_EQ(seen.size(), 1u) << "step " << step;
  }
  ranks.erase(std::prev(ranks.end()));  // may be closing just now
  ranks.erase(ranks.begin());
  const StepStatus status = loops_[1]->status();
  EXPECT_EQ(status.pauses.size(), 6u);
  EXPECT_EQ(status.pauses.back().to.version, 6);
}

TEST_F(StepLoopTest, V6_StagedRanksChangeOverTogetherAndNotBefore) {
  start_all(1);
  for (const int rank : {0, 2}) {
    staged_[rank] = 2;
    EXPECT_TRUE(steps_on(1)) << waiting();
    EXPECT_EQ(changes_, 0) << "rank 1 is not ready";
  }
  staged_[1] = 2;
  EXPECT_TRUE(eventually([&] {
    const auto recent = loops_[1]->status().recent;
    return recent.back().version.version == 2;
  })) << waiting();
  EXPECT_EQ(changes_, kRanks);
  EXPECT_TRUE(steps_on(0)) << waiting();
}

TEST_F(StepLoopTest, OneRankAloneIsAnEngineToo) {
  StepLoopOptions alone = options(0);
  alone.follower.identity.engine_size = 1;
  fences_[0].lower({0, 9});
  auto loop = StepLoop::start(std::move(alone), {fences_[0], idle_pass, {}, {}});
  ASSERT_TRUE(loop.ok());
  loops_[0] = std::move(loop).take();
  EXPECT_TRUE(steps_on(0));
}

// Whichever rank of an engine is asked, it says for whom all of them wait.
TEST_F(StepLoopTest, R7_EveryRankSaysForWhomTheEngineWaits) {
  for (int rank = 0; rank < 2; ++rank) {
    fences_[rank].lower({0, 1});
    start(rank);
  }
  EXPECT_TRUE(waits_for(1, "rank 2: not here")) << waiting(1);
  fences_[2].lower({0, 1});
  start(2);
  EXPECT_TRUE(steps_on(1)) << waiting(1);
  EXPECT_TRUE(eventually([&] { return waiting(1).empty(); })) << waiting(1);
  loops_[2].reset();
  EXPECT_TRUE(waits_for(1, "rank 2: not here")) << waiting(1);
}

TEST_F(StepLoopTest, AFencedRankPausesAllWithoutSpinning) {
  start_all(1);
  EXPECT_TRUE(steps_on(0));
  fences_[1].raise("receiving version 2");
  EXPECT_TRUE(waits_for(0, "rank 1: receiving version 2"));
  EXPECT_TRUE(waits_for(2, "rank 1: receiving version 2"));
  const uint64_t run = loops_[0]->status().run;
  const uint64_t cancelled = loops_[0]->status().cancelled;
  const int refused = fences_[1].refused;
  // 1.2 s of the bounded wait on the fence: asked a handful of times, not hundreds.
  EXPECT_TRUE(eventually([&] { return fences_[1].refused >= refused + 6; }));
  EXPECT_LE(loops_[0]->status().run, run + 1);
  EXPECT_LE(loops_[0]->status().cancelled, cancelled + 4);
  EXPECT_EQ(fences_[0].guards() + fences_[2].guards(), 0) << "a guard held while nothing runs";
  fences_[1].lower({0, 1});
  EXPECT_TRUE(steps_on(0));
}

TEST_F(StepLoopTest, ADeadRankStopsTheStepsAndIsNamedUntilItIsBack) {
  start_all(1);
  EXPECT_TRUE(steps_on(2));
  loops_[1].reset();
  EXPECT_TRUE(waits_for(0, "rank 1: not here"));
  EXPECT_TRUE(eventually([&] { return fences_[0].guards() + fences_[2].guards() == 0; }));
  start(1);
  EXPECT_TRUE(steps_on(2)) << waiting();
  EXPECT_TRUE(steps_on(1)) << waiting();
}

TEST_F(StepLoopTest, ADeadConductorLeavesNoGuardAndItsSuccessorGoesOn) {
  start_all(1);
  EXPECT_TRUE(steps_on(2));
  loops_[0].reset();
  EXPECT_TRUE(waits_for(1, "rank 0"));
  EXPECT_TRUE(eventually([&] { return fences_[1].guards() + fences_[2].guards() == 0; }));
  const uint64_t before = loops_[1]->status().current;
  start(0);
  EXPECT_TRUE(steps_on(2)) << waiting();
  EXPECT_GT(loops_[0]->status().recent.front().step, before);
}

TEST_F(StepLoopTest, R7_ARankThatHangsInAStepIsNamed) {
  StepLoopOptions impatient = options(0);
  impatient.conductor.run_timeout = milliseconds(100);
  fences_[0].lower({0, 1});
  auto loop = StepLoop::start(std::move(impatient), {fences_[0], idle_pass, {}, {}});
  ASSERT_TRUE(loop.ok());
  loops_[0] = std::move(loop).take();
  for (int rank = 1; rank < kRanks; ++rank) {
    fences_[rank].lower({0, 1});
    start(rank);
  }
  EXPECT_TRUE(steps_on(0));
  hold_rank_ = 2;
  EXPECT_TRUE(waits_for(0, "rank 2: silent for 0.1 s in step"));
  EXPECT_TRUE(eventually([&] { return loops_[0]->status().incomplete == 1; }))
      << "its own part of that step counts for nobody";
  hold_rank_ = -1;
  EXPECT_TRUE(steps_on(0)) << waiting();
}

TEST_F(StepLoopTest, N10_ARankOfAnotherEngineIsRefusedByName) {
  start_all(1);
  FakeFence fence;
  auto other = StepLoop::start(options(1, "b"), {fence, idle_pass, {}, {}});
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(eventually([&] {
    return (*other)->status().waiting_for.find("engine \"a\", not of engine \"b\"") !=
           std::string::npos;
  })) << (*other)->status().waiting_for;
  EXPECT_TRUE(steps_on(0)) << "the engine itself goes on";
}

TEST_F(StepLoopTest, ASecondRank0AndASecondRank1AreRefused) {
  start_all(1);
  FakeFence fence;
  const auto second = StepLoop::start(options(0), {fence, idle_pass, {}, {}});
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_NE(second.status().message().find("rank 0 of engine \"a\""), std::string::npos);
  EXPECT_TRUE(steps_on(1));
  auto twin = StepLoop::start(options(1), {fence, idle_pass, {}, {}});
  ASSERT_TRUE(twin.ok());
  EXPECT_TRUE(eventually([&] {
    return (*twin)->status().waiting_for.find("another process that is still here") !=
           std::string::npos;
  })) << (*twin)->status().waiting_for;
  EXPECT_TRUE(steps_on(1));
}

TEST_F(StepLoopTest, S3_PeersThatTalkNonsenseOrNothingHarmNobody) {
  start_all(1);
  const os::SystemClock clock;
  const auto deadline = [&] { return clock.now() + seconds(5); };
  std::vector<os::Fd> silent;
  for (const std::string_view bytes :
       {std::string_view("GET / HTTP/1.1\r\n\r\n"), std::string_view("\x80\x04\x95pickle"),
        std::string_view("\xff\xff\xff\xff"), std::string_view("\x04\x00\x00\x00oops", 8)}) {
    auto fd = os::dial_unix(socket_, clock, deadline());
    ASSERT_TRUE(fd.ok());
    ASSERT_TRUE(os::write_some(*fd, std::as_bytes(std::span(bytes))).ok());
    silent.push_back(std::move(fd).take());
  }
  silent.push_back(os::dial_unix(socket_, clock, deadline()).take());
  for (const os::Fd& fd : silent) {  // Each is closed; the silent one after its hello timeout.
    std::byte buffer[4096];
    std::optional<size_t> got;
    while (!got || *got != 0) {
      ASSERT_TRUE(os::wait_readable(fd, clock, deadline(), "the refusal").ok());
      const auto read = os::read_some(fd, buffer);
      ASSERT_TRUE(read.ok());
      got = *read;
    }
  }
  EXPECT_TRUE(steps_on(2));
}

TEST_F(StepLoopTest, TheSocketsNameTellsEnginesApart) {
  const Endpoint endpoint = *Endpoint::parse("shm:demo");
  const std::string name = step_socket_name(endpoint, "job", "a");
  EXPECT_EQ(name, step_socket_name(endpoint, "job", "a"));
  EXPECT_EQ(name.find("changeover.step."), 0u);
  EXPECT_LT(name.size(), 100u);
  EXPECT_NE(name, step_socket_name(endpoint, "job", "b"));
  EXPECT_NE(name, step_socket_name(endpoint, "joba", ""));
  EXPECT_NE(name, step_socket_name(*Endpoint::parse("shm:other"), "job", "a"));
}

}  // namespace
}  // namespace changeover::reference
