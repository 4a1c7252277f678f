// What most end-to-end suites run over: every live road, in every mode.
#pragma once

#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "tests/e2e/kit.h"

namespace changeover::e2e {

struct Way {
  std::string road;
  Mode mode = Mode::kJournal;
};

inline std::string way_name(const testing::TestParamInfo<Way>& way) {
  return way.param.road + "_" + std::string(mode_name(way.param.mode));
}
inline void PrintTo(const Way& way, std::ostream* out) {
  *out << way.road << ", " << mode_name(way.mode);
}
inline auto every_way() {
  return testing::Values(Way{"tcp", Mode::kJournal}, Way{"tcp", Mode::kInPlace},
                         Way{"tcp", Mode::kStaged}, Way{"tcp", Mode::kSwap},
                         Way{"shm", Mode::kJournal}, Way{"shm", Mode::kInPlace},
                         Way{"shm", Mode::kStaged}, Way{"shm", Mode::kSwap});
}

class OverEveryWay : public testing::TestWithParam<Way> {
 protected:
  const std::string& road() const { return GetParam().road; }
  Mode mode() const { return GetParam().mode; }
  RankOptions rank(const std::string& engine, int index, int tp) const {
    RankOptions out;
    out.engine = engine;
    out.rank = index;
    out.tp = tp;
    out.mode = mode();
    return out;
  }
};

// For suites over roads alone.
inline std::string road_name(const testing::TestParamInfo<std::string>& road) {
  return road.param;
}

}  // namespace changeover::e2e
