// Reloads beside updates, through the public API: what a handle, an engine's other ranks, the hook
// and status() see of them (rules M5, T9, T12, V6).
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/kit.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Reloads : public testing::Test {
 protected:
  RankOptions rank(int index, int tp) const {
    RankOptions out;
    out.rank = index;
    out.tp = tp;
    return out;
  }
  void publish(int64_t version, uint32_t ranks) {
    auto report = publisher_->publish(*model_.source(version), publish_options(version, ranks));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    ASSERT_TRUE(report->status.ok()) << report->status.to_string();
  }
  Status write(Subscriber::Reload& reload, int64_t version, size_t first, size_t last) const {
    const auto tensors = model_.tensors(version);
    for (size_t i = first; i < std::min(last, tensors.size()); ++i) {
      CHANGEOVER_TRY(reload.write(tensors[i].name, tensors[i].view));
    }
    return {};
  }
  Status reload(Rank& rank, int64_t version) const {
    CHANGEOVER_TRY_ASSIGN(auto reload, rank->begin_reload(VersionStamp{0, version}));
    CHANGEOVER_TRY(write(*reload, version, 0, SIZE_MAX));
    return reload->finish();
  }

  const Model model_{true};
  std::unique_ptr<Publisher> publisher_ = open_publisher(publisher_options("tcp"));
};

TEST_F(Reloads, T9_AHandleThatIsDroppedEndsItsReload) {
  Rank only(model_, publisher_->endpoint(), rank(0, 1));
  publish(1, 1);
  ASSERT_TRUE(only.serves(1));
  {
    auto dropped = only->begin_reload(VersionStamp{0, 2});
    ASSERT_TRUE(dropped.ok());
    ASSERT_TRUE(write(**dropped, 2, 0, SIZE_MAX).ok());
  }
  EXPECT_FALSE(only->fence().acquire(0s).ok()) << "nobody said that it was complete";
  publish(3, 1);
  EXPECT_TRUE(only.serves(3) && only.holds(3));
  { (void)only->begin_reload(VersionStamp{0, 4}); }
  EXPECT_TRUE(reload(only, 4).ok());
  EXPECT_TRUE(only.serves(4) && only.holds(4));
}

TEST_F(Reloads, T9_AHandleIsOverOnceItWasFinished) {
  Rank only(model_, publisher_->endpoint(), rank(0, 1), false);
  auto first = only->begin_reload(VersionStamp{0, 5});
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE((*first)->finish().ok());
  auto second = only->begin_reload(VersionStamp{0, 6});
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(write(**first, 5, 0, 1).code(), Code::kRefused);
  EXPECT_EQ((*first)->finish().code(), Code::kRefused);
  first->reset();
  EXPECT_TRUE(write(**second, 6, 0, SIZE_MAX).ok());
  EXPECT_TRUE((*second)->finish().ok());
  EXPECT_TRUE(only.holds(6));
}

// One rank of two is reloaded: it steps only when its peer holds the same, and the publisher, which
// has heard of both, says so.
TEST_F(Reloads, V6_M5_AReloadedRankWaitsForItsEngine) {
  Rank a0(model_, publisher_->endpoint(), rank(0, 2));
  Rank a1(model_, publisher_->endpoint(), rank(1, 2));
  publish(1, 2);
  ASSERT_TRUE(a0.serves(1) && a1.serves(1));
  ASSERT_TRUE(reload(a0, 7).ok());
  const auto alone = a0->fence().acquire(200ms);
  EXPECT_THAT(alone.status().message(), HasSubstr("release of version 7"));
  const auto heard = [&] {
    for (const PeerStatus& peer : publisher_->peers()) {
      if (peer.rank.rank == 0 && peer.version == VersionStamp{0, 7}) {
        return peer.pending;
      }
    }
    return false;
  };
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (!heard() && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(heard())
      << "the publisher knows what the rank holds, and that the engine is not whole";
  EXPECT_FALSE(a0->fence().acquire(0s).ok());
  ASSERT_TRUE(reload(a1, 7).ok());
  EXPECT_TRUE(a0.serves(7) && a1.serves(7));
  publish(8, 2);
  EXPECT_TRUE(a0.serves(8) && a0.holds(8) && a1.serves(8) && a1.holds(8));
}

TEST_F(Reloads, T12_TheHookRunsBeforeStepsAreLetIn) {
  std::atomic<int> calls{0};
  Rank* self = nullptr;
  auto options = rank(0, 1);
  options.subscriber.on_commit = [&]() -> std::string {
    ++calls;
    EXPECT_FALSE((*self)->fence().acquire(0s).ok());
    return "flushed";
  };
  Rank only(model_, publisher_->endpoint(), options, false);
  self = &only;
  ASSERT_TRUE(reload(only, 5).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(only.serves(5));
  ASSERT_TRUE(only->start().ok());
  publish(6, 1);
  ASSERT_TRUE(only.serves(6));
  ASSERT_TRUE(reload(only, 7).ok());
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(only.serves(7));
}

TEST_F(Reloads, T7_StatusIsTrueWhileTheFenceIsUp) {
  Rank only(model_, publisher_->endpoint(), rank(0, 1));
  publish(1, 1);
  ASSERT_TRUE(only.serves(1));
  const auto expect_fenced = [&](const char* when) {
    const RankStatus status = only->status();
    EXPECT_TRUE(status.fenced) << when;
    EXPECT_THAT(status.fence_reason, HasSubstr("a reload to version 2")) << when;
    EXPECT_FALSE(status.gate_open) << when;
    EXPECT_EQ(status.version, std::nullopt) << when;
  };
  {
    auto half = only->begin_reload(VersionStamp{0, 2});
    ASSERT_TRUE(half.ok());
    expect_fenced("begun");
    ASSERT_TRUE(write(**half, 2, 0, 3).ok());
    EXPECT_FALSE((*half)->finish().ok());
    expect_fenced("not complete");
  }
  EXPECT_TRUE(reload(only, 2).ok());
  EXPECT_EQ(only->status().version, (VersionStamp{0, 2}));
  EXPECT_FALSE(only->status().fenced);
  EXPECT_TRUE(only->status().gate_open);
}

// A child cannot say that the memory is its own: whoever has loaded something before the fork does
// not start after it.
TEST_F(Reloads, T1_NothingStartsInAChildOfARankThatHoldsAVersion) {
  Rank only(model_, publisher_->endpoint(), rank(0, 1), false);
  ASSERT_TRUE(reload(only, 5).ok());
  const pid_t child = fork();
  if (child == 0) {
    _exit(only->start().code() == Code::kRefused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace changeover::e2e
