// Rule R4's other half: what a road holds it takes when it is made, and nothing per update.
#include <gtest/gtest.h>

#include "tests/count_allocations.h"
#include "transport/contract_kit.h"

namespace changeover::transport {
namespace {

using std::chrono::seconds;

class Allocations : public testing::TestWithParam<RoadKind> {};

TEST_P(Allocations, R4_NothingIsAllocatedPerUpdate) {
  const auto kit = Kit::create({.road = GetParam(), .readers = 2}).take();
  std::vector<std::unique_ptr<ReceiveRoad>> readers;
  for (const uint32_t i : kit->all()) {
    readers.push_back(kit->open_reader(i).take());
  }
  const std::vector<std::byte> payload = pattern_bytes(1, 0, 150'000);
  std::vector<std::byte> own(payload.size());
  const Instant deadline = in(seconds(20));
  for (uint64_t id = 1; id <= 3; ++id) {
    uint64_t received = 0;
    bool ok = true;
    allocations = 0;
    counting = true;
    ok &= kit->sender().open_stream(kit->all(), id).ok();
    ok &= kit->sender().send(Part::kHeader, std::span(payload).first(32), deadline).ok();
    ok &= kit->sender().send(Part::kPayload, payload, deadline).ok();
    ok &= kit->sender().flush(deadline).ok();
    for (const auto& reader : readers) {
      ok &= reader->open_stream(id).ok();
      for (uint64_t left = payload.size() + 32; ok && left > 0;) {
        const Result<transport::Run> run = reader->receive(
            Part::kPayload, left, std::span(own).first(std::min(left, own.size())), deadline);
        ok &= run.ok() && reader->release(*run).ok();
        left -= run.ok() ? run->bytes : 0;
        received += run.ok() ? run->bytes : 0;
      }
    }
    counting = false;
    EXPECT_TRUE(ok);
    EXPECT_EQ(received, 2 * (payload.size() + 32));
    EXPECT_EQ(allocations.load(), 0) << "stream " << id;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Allocations, testing::Values(RoadKind::kTcp, RoadKind::kShm),
                         [](const auto& info) {
                           return std::string(info.param == RoadKind::kTcp ? "tcp" : "shm");
                         });

}  // namespace
}  // namespace changeover::transport
