// The fence at the very moment of a write: the live memory is made read-only, and whoever writes
// first meets a handler that looks at the fence (rules T7, T8, T9).
#include <csignal>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "update/toy_model_testing.h"

namespace changeover::update {
namespace {

using namespace testing;

constexpr int64_t kBytes = 1 << 20;

// Whole pages inside a parameter, from now to the first write. One at a time.
class FirstWrite {
 public:
  explicit FirstWrite(const ToyRank& rank) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(rank.memory.parameters()[0].data);
    const uintptr_t first = (begin + page - 1) / page * page;
    pages_ = reinterpret_cast<void*>(first);
    bytes_ = (begin + kBytes) / page * page - first;
    fence_ = &rank.fence;
    writes_ = 0;
    was_up_ = false;
    struct sigaction action {};
    action.sa_handler = [](int) {
      was_up_ = fence_->up();
      writes_ = writes_ + 1;
      mprotect(pages_, bytes_, PROT_READ | PROT_WRITE);
    };
    sigaction(SIGSEGV, &action, &before_);
    mprotect(pages_, bytes_, PROT_READ);
  }
  ~FirstWrite() {
    mprotect(pages_, bytes_, PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &before_, nullptr);
  }
  static int writes() { return writes_; }
  static bool was_up() { return was_up_; }

 private:
  struct sigaction before_ {};
  static inline void* pages_ = nullptr;
  static inline size_t bytes_ = 0;
  static inline const FenceState* fence_ = nullptr;
  static inline volatile std::sig_atomic_t writes_ = 0;
  static inline volatile bool was_up_ = false;
};

LoadPlan one_parameter() {
  LoadPlan plan;
  plan.parameters.push_back({"large", DType::kI8, {kBytes}});
  plan.sources.push_back({plan.parameters[0], {}});
  plan.pieces.push_back({0, 0, box(0, {{kBytes, 1}}), box(0, {{kBytes, 1}}), PieceOp::kCopy, ""});
  return plan;
}

std::vector<Sent> filled(std::byte value) {
  return {{one_parameter().parameters[0], std::vector<std::byte>(kBytes, value)}};
}

class FenceAtAWrite : public ::testing::Test {
 protected:
  FenceAtAWrite() {
    EXPECT_TRUE(update::testing::update(rank_, {0, 1}, {{"large", old_[0].bytes}}, 1, kBytes).ok());
    EXPECT_TRUE(rank_.fence.open());
  }
  ToyRank rank_{Mode::kJournal, one_parameter()};
  const std::vector<Sent> old_ = filled(std::byte{1});
  const std::vector<Sent> new_ = filled(std::byte{2});
};

TEST_F(FenceAtAWrite, T7_IsUpAtTheFirstByteOfAnUpdate) {
  ASSERT_EQ(rank_.transaction->begin({0, 2}, {}, true).kind, BeginKind::kReady);
  const FirstWrite first(rank_);
  ASSERT_TRUE(send_frame(*rank_.transaction, new_, kBytes).ok());
  EXPECT_EQ(first.writes(), 1);
  EXPECT_TRUE(first.was_up());
}

TEST_F(FenceAtAWrite, T8_IsStillUpWhenTheOldBytesArePutBack) {
  ASSERT_EQ(rank_.transaction->begin({0, 2}, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(*rank_.transaction, new_, kBytes).ok());
  const FirstWrite first(rank_);
  rank_.transaction->abort({Code::kAborted, "a peer failed"}, false);
  EXPECT_EQ(first.writes(), 1);
  EXPECT_TRUE(first.was_up());
  EXPECT_TRUE(rank_.fence.open()) << "and down after that";
}

TEST_F(FenceAtAWrite, T9_IsUpAtTheFirstByteOfAReload) {
  const FirstWrite first(rank_);
  ASSERT_TRUE(rank_.transaction->begin_reload(VersionStamp{0, 2}).ok());
  ASSERT_TRUE(
      rank_.transaction->reload_tensor("large", {DType::kI8, {kBytes}, {}, new_[0].bytes.data()})
          .ok());
  EXPECT_EQ(first.writes(), 1);
  EXPECT_TRUE(first.was_up());
}

}  // namespace
}  // namespace changeover::update
