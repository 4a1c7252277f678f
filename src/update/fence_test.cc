// The fence word under real threads (rules T7, T11; case B60).
#include "update/fence.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "update/toy_model_testing.h"

namespace changeover::update {
namespace {

TEST(Fence, StartsUpAndShut) {
  FenceState fence;
  EXPECT_TRUE(fence.up());
  EXPECT_FALSE(fence.gate_open());
  EXPECT_FALSE(fence.try_enter());
  EXPECT_EQ(fence.reason(), "no version was loaded so far");
  fence.publish({0, 1});
  fence.lower();
  EXPECT_FALSE(fence.try_enter());
  EXPECT_EQ(fence.reason(), "waiting for the release of version 1");
  fence.open_gate();
  EXPECT_EQ(fence.try_enter(), (VersionStamp{0, 1}));
  EXPECT_EQ(fence.reason(), "");
}

TEST(Fence, T7_RaisingKeepsNewcomersOutAndCountsThoseInside) {
  FenceState fence;
  fence.publish({0, 1});
  fence.lower();
  fence.open_gate();
  ASSERT_TRUE(fence.try_enter());
  ASSERT_TRUE(fence.try_enter());
  EXPECT_FALSE(fence.leave());
  EXPECT_EQ(fence.raise(FenceReason::kReceiving, VersionStamp{3, 2}), 1u);
  EXPECT_FALSE(fence.try_enter());
  EXPECT_EQ(fence.readers(), 1u);
  EXPECT_EQ(fence.reason(), "receiving version 2 of epoch 3");
  EXPECT_TRUE(fence.leave()) << "the last one out wakes the writer";
  EXPECT_EQ(fence.readers(), 0u);
}

TEST(Fence, V6_TheGateAloneKeepsReadersOut) {
  FenceState fence;
  fence.publish({0, 1});
  fence.lower();
  fence.open_gate();
  ASSERT_TRUE(fence.try_enter());
  fence.shut_gate();
  EXPECT_FALSE(fence.up());
  EXPECT_FALSE(fence.try_enter());
  EXPECT_FALSE(fence.leave());
}

// Readers check that what they see is whole while a writer changes it as fast as it can. A torn
// pair, a lost count or a missing edge of memory order fails here or under the thread sanitizer.
TEST(Fence, T11_AReaderSeesVersionAndWeightsOfOneUpdate) {
  constexpr int64_t kVersions = 2000;
  constexpr size_t kWords = 16;
  FenceState fence;
  std::vector<int64_t> weights(kWords, 0);  // plain memory: only the fence keeps it apart
  std::atomic<bool> stop{false};
  std::atomic<int64_t> seen{0};
  std::atomic<int64_t> torn{0};
  auto read = [&] {
    int64_t last = -1;
    while (!stop.load()) {
      const auto version = fence.try_enter();
      if (!version) {
        std::this_thread::yield();
        continue;
      }
      const int64_t number = version->version.version;
      for (int64_t word : weights) {
        torn += word != number;
      }
      torn += number < last;
      last = number;
      ++seen;
      (void)fence.leave();
    }
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back(read);
  }
  fence.publish({0, 0});
  fence.lower();
  fence.open_gate();
  for (int64_t version = 1; version <= kVersions; ++version) {
    const int64_t before = seen.load();
    while (version % 64 == 0 && seen.load() == before) {
      std::this_thread::yield();  // Readers get in between.
    }
    (void)fence.raise(FenceReason::kReceiving, VersionStamp{0, version});
    while (fence.readers() != 0) {
      std::this_thread::yield();
    }
    for (int64_t& word : weights) {
      word = version;
    }
    fence.publish({0, version});
    fence.lower();
  }
  stop = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_EQ(torn.load(), 0);
  EXPECT_GT(seen.load(), 0);
  EXPECT_EQ(fence.version(), (VersionStamp{0, kVersions}));
}

// The same in `swap`: readers take the half that is live, or name the version they saw last, and
// the writer waits only for those in the half that it is about to write.
TEST(Fence, T11_V6_AReaderOfAHalfSeesOneVersionWhole) {
  constexpr int64_t kVersions = 300;
  constexpr size_t kWords = 16;
  FenceState fence;
  fence.pin_by_version();
  std::array<std::vector<int64_t>, 2> halves{std::vector<int64_t>(kWords, 0),
                                             std::vector<int64_t>(kWords, -1)};
  std::atomic<bool> stop{false};
  std::atomic<int64_t> seen{0};
  std::atomic<int64_t> named{0};
  std::atomic<int64_t> torn{0};
  auto read = [&] {
    std::optional<FenceState::Pin> pin;
    VersionStamp last{0, -1};
    for (int64_t turn = 0; !stop.load(); ++turn) {
      const bool by_name = turn % 3 != 0 && last.version >= 0;
      pin = by_name ? fence.try_enter(last) : fence.try_enter();
      if (!pin) {
        last.version = -1;
        std::this_thread::yield();
        continue;
      }
      torn += by_name && pin->version != last;
      for (int64_t word : halves[pin->half]) {
        torn += word != pin->version.version;
      }
      last = pin->version;
      ++(by_name ? named : seen);
      (void)fence.leave(pin->half);
    }
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back(read);
  }
  fence.publish({0, 0}, 0);
  fence.lower();
  fence.open_gate();
  for (int64_t version = 1; version <= kVersions; ++version) {
    const int64_t before = seen.load();
    while (version % 64 == 0 && seen.load() == before) {
      std::this_thread::yield();
    }
    const uint32_t next = fence.half() ^ 1;
    (void)fence.retire(next);
    while (fence.readers(next) != 0) {
      std::this_thread::yield();
    }
    for (int64_t& word : halves[next]) {
      word = version;
    }
    fence.raise_for_unnamed(FenceReason::kPrepared, VersionStamp{0, version});
    fence.shut_gate();
    fence.publish({0, version}, next);
    fence.lower();
    fence.open_gate();
  }
  stop = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_EQ(torn.load(), 0);
  EXPECT_GT(seen.load(), 0);
  EXPECT_GT(named.load(), 0);
}

TEST(Fence, ReasonAndVersionAreNeverTorn) {
  FenceState fence;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t i = 1; i < 5000; ++i) {
      fence.publish({i, i});
      fence.set_reason(FenceReason::kReceiving, VersionStamp{i, i});
    }
    stop = true;
  });
  int64_t torn = 0;
  while (!stop.load()) {
    if (const auto version = fence.version()) {
      torn += version->epoch != version->version;
    }
    (void)fence.reason();
  }
  writer.join();
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace changeover::update
