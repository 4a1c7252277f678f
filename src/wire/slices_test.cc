// Parts of split tensors from frame to frame (rules W6, W7).
#include "wire/slices.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace changeover::wire {
namespace {

constexpr uint64_t kTotal = 10;

Entry part(const std::string& name, uint64_t first, uint64_t nbytes) {
  return {{name, DType::kU8, {kTotal}}, 0, nbytes, TensorSlice{first, kTotal}, std::nullopt};
}

Entry whole(const std::string& name) {
  return {{name, DType::kU8, {kTotal}}, 0, kTotal, std::nullopt, std::nullopt};
}

// The first refusal of a stream of frames, END included; empty if there is none.
std::string refusal(const std::vector<std::vector<Entry>>& frames) {
  SliceTracker tracker;
  for (const auto& frame : frames) {
    if (const Status status = tracker.on_frame(frame); !status.ok()) {
      EXPECT_EQ(status.code(), Code::kCorrupt);
      return status.message();
    }
  }
  return tracker.on_end().message();
}

void expect_refused(const std::vector<std::vector<Entry>>& frames, std::string_view why) {
  EXPECT_NE(refusal(frames).find(why), std::string::npos) << refusal(frames) << "\nwanted: " << why;
}

TEST(Slices, W6_PartsInOrderWithWholeTensorsAroundThem) {
  EXPECT_EQ(refusal({{whole("a"), part("w", 0, 4)},
                     {part("w", 4, 4)},
                     {part("w", 8, 2), whole("b")},
                     {part("v", 0, 10)},
                     {part("u", 0, 9)},
                     {part("u", 9, 1)},
                     {}}),
            "");
}

TEST(Slices, W6_W7_OutOfOrder) {
  expect_refused({{part("w", 4, 6)}},
                 "tensor \"w\": its part from byte 4 is out of order, none came before it (W6)");
  expect_refused({{part("w", 0, 4)}, {part("w", 6, 4)}},
                 "tensor \"w\": its part from byte 6 is out of order, byte 4 comes next (W6)");
}

TEST(Slices, W6_W7_PartsThatOverlap) {
  expect_refused({{part("w", 0, 4)}, {part("w", 3, 7)}},
                 "tensor \"w\": its part from byte 3 overlaps those that came, up to byte 4 (W6)");
  expect_refused({{part("w", 0, 4)}, {part("w", 0, 4)}}, "its part from byte 0 overlaps");
}

TEST(Slices, W6_W7_NothingBetweenTheParts) {
  expect_refused({{part("w", 0, 4)}, {whole("a")}, {part("w", 4, 6)}},
                 "tensor \"w\": its part from byte 4 must come next, a frame without one came");
  expect_refused({{part("w", 0, 4)}, {}}, "a frame without one came");
  expect_refused({{part("w", 0, 4)}, {part("v", 0, 4)}},
                 "tensor \"w\": its part from byte 4 must come next, one of \"v\" came");
  expect_refused({{part("w", 0, 4)}, {part("v", 4, 6)}}, "one of \"v\" came");
}

TEST(Slices, W6_W7_PartsAgreeOnTheTensor) {
  Entry other = part("w", 4, 6);
  other.spec.dtype = DType::kI8;
  expect_refused({{part("w", 0, 4)}, {other}},
                 "tensor \"w\": its first part says uint8 [10], a later one int8 [10] (W6)");
}

TEST(Slices, W6_W7_MissingLastPartAtEnd) {
  expect_refused({{part("w", 0, 4)}, {part("w", 4, 4)}},
                 "tensor \"w\": END came before its part from byte 8 of 10 (W6)");
}

}  // namespace
}  // namespace changeover::wire
