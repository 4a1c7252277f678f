// Whole updates: one publisher, several ranks, real sockets and threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/kit.h"

namespace changeover::e2e {
namespace {

using ::testing::HasSubstr;

struct Way {
  const char* road;
  Mode mode;
};

class UpdateOver : public testing::TestWithParam<std::tuple<const char*, Mode>> {
 protected:
  std::string road() const { return std::get<0>(GetParam()); }
  Mode mode() const { return std::get<1>(GetParam()); }
  RankOptions rank(const std::string& engine, int index, int tp) const {
    RankOptions out;
    out.engine = engine;
    out.rank = index;
    out.tp = tp;
    out.mode = mode();
    return out;
  }
};

TEST_P(UpdateOver, CommitsByteEqualToAColdLoad) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank first(model, publisher->endpoint(), rank("a", 0, 2));
  Rank second(model, publisher->endpoint(), rank("a", 1, 2));
  for (int64_t version = 1; version <= 3; ++version) {
    const auto report = publisher->publish(*model.source(version), publish_options(version, 2));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    ASSERT_TRUE(report->status.ok()) << report->status.to_string() << "\n"
                                     << first.log().all() << second.log().all();
    for (Rank* each : {&first, &second}) {
      EXPECT_TRUE(each->serves(version));
      EXPECT_TRUE(each->holds(version));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, UpdateOver,
                         testing::Combine(testing::Values("tcp", "shm"),
                                          testing::Values(Mode::kJournal, Mode::kInPlace)),
                         [](const auto& way) {
                           return std::string(std::get<0>(way.param)) + "_" +
                                  std::string(mode_name(std::get<1>(way.param)));
                         });

}  // namespace
}  // namespace changeover::e2e
