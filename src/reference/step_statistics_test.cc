#include "reference/step_statistics.h"

#include <gtest/gtest.h>

namespace changeover::reference {
namespace {

StepRun run(uint64_t step, int64_t version, int64_t start_ms, uint64_t checksum = 1,
            uint32_t window = 0) {
  StepRun run;
  run.record = {step, {0, version}, checksum};
  run.window = window;
  run.start = Instant{start_ms * 1'000'000};
  run.end = Instant{(start_ms + 5) * 1'000'000};
  return run;
}

TEST(StepStatistics, CountsAndAges) {
  StepStatistics statistics;
  EXPECT_FALSE(statistics.snapshot({}).last_step_age_seconds.has_value());
  statistics.begun(3);
  statistics.counted(run(3, 1, 10));
  statistics.begun(4);
  statistics.cancelled();
  statistics.incomplete();
  const StepStatus status = statistics.snapshot(Instant{1'015'000'000});
  EXPECT_EQ(status.current, 4u);
  EXPECT_EQ(status.run, 1u);
  EXPECT_EQ(status.cancelled, 1u);
  EXPECT_EQ(status.incomplete, 1u);
  EXPECT_DOUBLE_EQ(*status.last_step_age_seconds, 1.0);
  EXPECT_EQ(statistics.last_run(), 3u);
}

TEST(StepStatistics, ThePauseIsTheLongestGapBeforeEachChangeOfVersion) {
  StepStatistics statistics;
  statistics.counted(run(1, 1, 0));    // ends at 5
  statistics.counted(run(2, 1, 205));  // 200 ms: an update that was undone
  statistics.counted(run(3, 2, 310));  // 100 ms
  statistics.counted(run(4, 2, 330));  // 15 ms
  statistics.counted(run(5, 3, 400));  // 65 ms
  const StepStatus status = statistics.snapshot({});
  ASSERT_EQ(status.pauses.size(), 3u);
  EXPECT_FALSE(status.pauses[0].from.has_value());
  EXPECT_DOUBLE_EQ(status.pauses[0].seconds, 0);
  EXPECT_EQ(status.pauses[1].from->version, 1);
  EXPECT_EQ(status.pauses[1].to.version, 2);
  EXPECT_EQ(status.pauses[1].step, 3u);
  EXPECT_DOUBLE_EQ(status.pauses[1].seconds, 0.2);
  EXPECT_DOUBLE_EQ(status.pauses[2].seconds, 0.065);
  EXPECT_DOUBLE_EQ(status.pause_seconds_longest, 0.2);
}

TEST(StepStatistics, V6_AMixIsSeenAsOtherBytesOfOneVersion) {
  StepStatistics statistics;
  statistics.counted(run(1, 1, 0, 111, 0));
  statistics.counted(run(2, 1, 10, 222, 1));
  statistics.counted(run(3, 1, 20, 111, 0));
  EXPECT_EQ(statistics.snapshot({}).mixed, 0u);
  statistics.counted(run(4, 1, 30, 999, 1));
  EXPECT_EQ(statistics.snapshot({}).mixed, 1u);
  statistics.counted(run(5, 2, 40, 998, 1));  // another version may read what it likes
  EXPECT_EQ(statistics.snapshot({}).mixed, 1u);
}

TEST(StepStatistics, ListsHaveTheirLimits) {
  StepStatistics statistics;
  for (uint64_t step = 1; step <= 600; ++step) {
    statistics.counted(run(step, static_cast<int64_t>(step), static_cast<int64_t>(step) * 10));
  }
  const StepStatus status = statistics.snapshot({});
  EXPECT_EQ(status.recent.size(), StepStatistics::kRecentMax);
  EXPECT_EQ(status.recent.back().step, 600u);
  EXPECT_EQ(status.pauses.size(), StepStatistics::kPausesMax);
  EXPECT_EQ(status.pauses.back().to.version, 600);
}

}  // namespace
}  // namespace changeover::reference
