// What every road must do, whichever it is.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/socket.h"
#include "transport/contract_kit.h"

namespace changeover::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ContainsRegex;
using testing::HasSubstr;

struct Param {
  RoadKind road;
  bool faulty;
};

std::string param_name(const testing::TestParamInfo<Param>& info) {
  const char* names[] = {"tcp", "tcp6", "shm", "file"};
  return std::string(names[static_cast<int>(info.param.road)]) +
         (info.param.faulty ? "_faulty" : "");
}

class Road : public testing::TestWithParam<Param> {
 protected:
  bool is_file() const { return GetParam().road == RoadKind::kFile; }
  void make(KitOptions options) {
    options.road = GetParam().road;
    options.faulty = GetParam().faulty;
    Result<std::unique_ptr<Kit>> kit = Kit::create(options);
    ASSERT_TRUE(kit.ok()) << kit.status().to_string();
    kit_ = std::move(kit).take();
  }
  // One whole stream to all readers, each in its thread (a file: after it).
  void stream(std::vector<std::unique_ptr<ReceiveRoad>>& readers, uint64_t id,
              const std::vector<uint64_t>& parts, bool lend) {
    std::vector<Status> got(kit_->all().size());
    std::vector<std::thread> threads;
    ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), id).ok());
    const auto receive = [&](uint32_t i) {
      got[i] = readers[i]->open_stream(id);
      if (got[i].ok()) {
        got[i] = receive_parts(*readers[i], id, parts, seconds(20), i % 2 == 0);
      }
    };
    for (uint32_t i = 0; i < got.size() && !is_file(); ++i) {
      threads.emplace_back(receive, i);
    }
    const Status sent = send_parts(kit_->sender(), id, parts, seconds(20), lend);
    for (std::thread& thread : threads) {
      thread.join();
    }
    ASSERT_TRUE(sent.ok()) << sent.to_string();
    if (is_file()) {
      ASSERT_TRUE(kit_->finish().ok());
      open(readers);
      receive(0);
    }
    for (const Status& status : got) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_TRUE(kit_->sender().take_failures().empty());
  }
  void open(std::vector<std::unique_ptr<ReceiveRoad>>& readers) {
    readers.clear();
    for (const uint32_t i : kit_->all()) {
      Result<std::unique_ptr<ReceiveRoad>> reader = kit_->open_reader(i);
      ASSERT_TRUE(reader.ok()) << reader.status().to_string();
      readers.push_back(std::move(reader).take());
    }
  }

  std::unique_ptr<Kit> kit_;
};

TEST_P(Road, BytesArriveInOrderForAnyPartSizes) {
  for (const uint32_t count : {1u, 4u}) {
    ASSERT_NO_FATAL_FAILURE(
        make({.readers = is_file() ? 1 : count, .slots = 3, .slot_bytes = 4096}));
    std::vector<std::unique_ptr<ReceiveRoad>> readers;
    if (!is_file()) {
      ASSERT_NO_FATAL_FAILURE(open(readers));
    }
    for (uint64_t round = 1; round <= 4; ++round) {
      const auto parts = random_parts(round * 7 + count, 12, round == 4 ? 300'000 : 9000);
      ASSERT_NO_FATAL_FAILURE(stream(readers, round, parts, round % 2 == 0));
    }
  }
}

TEST_P(Road, LargePartsGoThrough) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = is_file() ? 1u : 2u}));
  std::vector<std::unique_ptr<ReceiveRoad>> readers;
  if (!is_file()) {
    ASSERT_NO_FATAL_FAILURE(open(readers));
  }
  ASSERT_NO_FATAL_FAILURE(stream(readers, 1, {32, 100, 12'345'677, 32}, false));
}

TEST_P(Road, SecondStreamSeesNothingOfTheAbortedOne) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 1, .slots = 4, .slot_bytes = 4096}));
  SendRoad& sender = kit_->sender();
  std::unique_ptr<ReceiveRoad> reader;
  if (!is_file()) {
    reader = kit_->open_reader(0).take();
    ASSERT_TRUE(reader->open_stream(1).ok());
  }
  // The first stops in the middle of a part, partly read; some of it was never flushed.
  ASSERT_TRUE(sender.open_stream(kit_->all(), 1).ok());
  ASSERT_TRUE(sender.send(Part::kPayload, pattern_bytes(1, 0, 5000), in(seconds(5))).ok());
  ASSERT_TRUE(sender.flush(in(seconds(5))).ok());
  if (reader) {
    ASSERT_TRUE(receive_parts(*reader, 1, {0, 0, 900}, seconds(5), false).ok());
  }
  ASSERT_TRUE(sender.send(Part::kPayload, pattern_bytes(1, 5000, 100), in(seconds(5))).ok());
  ASSERT_TRUE(sender.lend(Part::kPayload, 50, in(seconds(5))).ok());

  const std::vector<uint64_t> parts = {32, 77, 9000};
  ASSERT_TRUE(sender.open_stream(kit_->all(), 2).ok());
  ASSERT_TRUE(send_parts(sender, 2, parts, seconds(5), false).ok());
  ASSERT_TRUE(kit_->finish().ok());
  if (!reader) {
    reader = kit_->open_reader(0).take();
  }
  ASSERT_TRUE(reader->open_stream(2).ok());
  const Status status = receive_parts(*reader, 2, parts, seconds(5), false);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(Road, WakeFromAnotherThreadEndsReceive) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 1}));
  SendRoad& sender = kit_->sender();
  ASSERT_TRUE(sender.open_stream(kit_->all(), 1).ok());
  if (is_file()) {
    ASSERT_TRUE(send_parts(sender, 1, {32}, seconds(5), false).ok());
    ASSERT_TRUE(kit_->finish().ok());
  }
  const std::unique_ptr<ReceiveRoad> reader = kit_->open_reader(0).take();
  ASSERT_TRUE(reader->open_stream(1).ok());
  for (int round = 0; round < 20; ++round) {
    std::thread waker([&] { reader->wake(); });
    if (is_file()) {
      waker.join();  // It never waits, so there is nothing to end but the next call.
    }
    const Result<transport::Run> run = reader->receive(Part::kHeader, 32, {}, in(seconds(20)));
    if (!is_file()) {
      waker.join();
    }
    ASSERT_FALSE(run.ok());
    EXPECT_EQ(run.status().code(), Code::kTryLater);
  }
  if (!is_file()) {
    ASSERT_TRUE(send_parts(sender, 1, {32}, seconds(5), false).ok());
  }
  const Status status = receive_parts(*reader, 1, {32}, seconds(5), false);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(Road, MisuseIsRefused) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 1}));
  SendRoad& sender = kit_->sender();
  ASSERT_TRUE(sender.open_stream(kit_->all(), 1).ok());
  EXPECT_EQ(sender.commit(1).code(), Code::kInvalidArgument);
  const Result<std::span<std::byte>> room = sender.lend(Part::kHeader, 10, in(seconds(5)));
  ASSERT_TRUE(room.ok());
  EXPECT_LE(room->size(), 10u);
  EXPECT_EQ(sender.commit(room->size() + 1).code(), Code::kInvalidArgument);
  sender.drop(0, Status(Code::kUnavailable, "told so"));
  sender.drop(0, Status(Code::kUnavailable, "told so again"));
  const std::vector<PeerFailure> failures = sender.take_failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].status.message(), "told so");
  EXPECT_TRUE(sender.take_failures().empty());
  EXPECT_EQ(sender.send(Part::kPayload, pattern_bytes(1, 0, 100'000), in(seconds(5))).code(),
            Code::kUnavailable);
}

// Every road of this machine (one without IPv6 has no tcp6), plain and wrapped.
std::vector<Param> roads(bool live_only) {
  std::vector<Param> all;
  for (const RoadKind road : {RoadKind::kTcp, RoadKind::kTcp6, RoadKind::kShm, RoadKind::kFile}) {
    const bool here = road != RoadKind::kTcp6 || os::listen_tcp("::1", 0).ok();
    if (here && !(live_only && road == RoadKind::kFile)) {
      all.push_back({road, false});
      all.push_back({road, true});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Road, testing::ValuesIn(roads(false)), param_name);

// What only a road with live readers can be asked.
class LiveRoad : public Road {};

TEST_P(LiveRoad, R7_ReceiveDeadlineNamesWhomHowLongAndWhatArrived) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 1}));
  const std::unique_ptr<ReceiveRoad> reader = kit_->open_reader(0).take();
  ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), 5).ok());
  ASSERT_TRUE(send_parts(kit_->sender(), 5, {32}, seconds(5), false).ok());
  ASSERT_TRUE(reader->open_stream(5).ok());
  ASSERT_TRUE(receive_parts(*reader, 5, {32}, seconds(5), false).ok());
  const Result<transport::Run> run = reader->receive(Part::kHeader, 64, {}, in(milliseconds(40)));
  ASSERT_EQ(run.status().code(), Code::kDeadline);
  EXPECT_THAT(run.status().message(), HasSubstr("the test's publisher"));
  // 40 ms, and however long this thread was kept from running after that.
  EXPECT_THAT(run.status().message(),
              ContainsRegex("waited ([4-9][0-9]|[1-9][0-9][0-9]+) ms|waited [0-9.]+ s"));
  EXPECT_THAT(run.status().message(), HasSubstr(": 32 bytes had arrived"));
  // Final for the stream (rule R3), not for the road.
  EXPECT_EQ(reader->receive(Part::kHeader, 64, {}, in(seconds(5))).status().code(),
            Code::kDeadline);
  ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), 6).ok());
  ASSERT_TRUE(send_parts(kit_->sender(), 6, {32}, seconds(5), false).ok());
  ASSERT_TRUE(reader->open_stream(6).ok());
  EXPECT_TRUE(receive_parts(*reader, 6, {32}, seconds(5), false).ok());
}

TEST_P(LiveRoad, R7_SendDeadlineNamesWhoHeldItBack) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 2, .stall_limit = seconds(60)}));
  const auto slow = kit_->open_reader(0).take();
  const auto fast = kit_->open_reader(1).take();
  ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), 1).ok());
  const uint64_t bytes = 16'000'000;
  std::atomic<uint64_t> taken = 0;
  std::thread reading([&] {  // as fast as it can, without looking
    EXPECT_TRUE(fast->open_stream(1).ok());
    Result<transport::Run> run = fast->receive(Part::kPayload, 1 << 20, {}, in(seconds(20)));
    while (run.ok() && fast->release(*run).ok()) {
      taken += run->bytes;
      run = fast->receive(Part::kPayload, 1 << 20, {}, in(seconds(20)));
    }
  });
  const Status status =
      kit_->sender().send(Part::kPayload, pattern_bytes(1, 0, bytes), in(seconds(2)));
  EXPECT_EQ(status.code(), Code::kDeadline) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("reader/0 ("));
  EXPECT_THAT(status.message(), HasSubstr("bytes had "));
  // Where the machine itself held the other reader back, it is named as well.
  const size_t late = taken == bytes ? 1 : 2;
  const std::vector<PeerFailure> failures = kit_->sender().take_failures();
  ASSERT_GE(failures.size(), 1u);
  EXPECT_LE(failures.size(), late);
  EXPECT_EQ(failures[0].peer, 0u);
  kit_->sender().drop(1, Status(Code::kUnavailable, "the test is over"));
  reading.join();
}

TEST_P(LiveRoad, R3_ReaderThatStopsReadingIsDroppedAtTheStallLimitOthersFinish) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 3, .stall_limit = milliseconds(400)}));
  std::vector<std::unique_ptr<ReceiveRoad>> readers;
  ASSERT_NO_FATAL_FAILURE(open(readers));
  const std::vector<uint64_t> parts = {32, 100, 20'000'000, 32, 0, 10'000'000};
  ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), 1).ok());
  std::vector<Status> got(3);
  std::vector<std::thread> threads;
  for (const uint32_t i : {0u, 2u}) {
    threads.emplace_back([&, i] {
      got[i] = readers[i]->open_stream(1);
      got[i] = receive_parts(*readers[i], 1, parts, seconds(40), i == 0);
    });
  }
  const Instant start = in(seconds(0));
  const Status sent = send_parts(kit_->sender(), 1, parts, seconds(40), false);
  EXPECT_LT(in(seconds(0)) - start, seconds(30));  // By the stall limit, not by its deadline.
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(sent.ok()) << sent.to_string();
  EXPECT_TRUE(got[0].ok()) << got[0].to_string();
  EXPECT_TRUE(got[2].ok()) << got[2].to_string();
  const std::vector<PeerFailure> failures = kit_->sender().take_failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].peer, 1u);
  EXPECT_EQ(failures[0].status.code(), Code::kDeadline);
  EXPECT_THAT(failures[0].status.message(), HasSubstr("(stall limit 400 ms)"));
  EXPECT_THAT(failures[0].status.message(), HasSubstr("bytes had "));
}

TEST_P(LiveRoad, R3_ReaderThatLeavesIsNamedOthersFinishAndItMayComeBack) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 2}));
  std::vector<std::unique_ptr<ReceiveRoad>> readers;
  ASSERT_NO_FATAL_FAILURE(open(readers));
  const std::vector<uint64_t> parts = {32, 100, 20'000'000};
  ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), 1).ok());
  Status got;
  std::thread staying([&] {
    got = readers[1]->open_stream(1);
    got = receive_parts(*readers[1], 1, parts, seconds(20), true);
  });
  std::thread leaving([&] {
    EXPECT_TRUE(readers[0]->open_stream(1).ok());
    EXPECT_TRUE(receive_parts(*readers[0], 1, {32, 100, 5000}, seconds(20), false).ok());
    readers[0]->close();
    readers[0]->close();
  });
  const Status sent = send_parts(kit_->sender(), 1, parts, seconds(20), false);
  staying.join();
  leaving.join();
  EXPECT_TRUE(sent.ok()) << sent.to_string();
  EXPECT_TRUE(got.ok()) << got.to_string();
  const std::vector<PeerFailure> failures = kit_->sender().take_failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].peer, 0u);
  EXPECT_EQ(failures[0].status.code(), Code::kUnavailable);
  EXPECT_EQ(readers[0]->receive(Part::kHeader, 1, {}, in(seconds(5))).status().code(),
            Code::kUnavailable);
  ASSERT_TRUE(kit_->attach(0).ok());
  readers[0] = kit_->open_reader(0).take();
  ASSERT_NO_FATAL_FAILURE(stream(readers, 2, {32, 10, 70'000}, true));
}

TEST_P(LiveRoad, PublisherThatGoesIsSeenAtOnceAfterWhatItLeft) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 1}));
  const auto reader = kit_->open_reader(0).take();
  ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), 1).ok());
  ASSERT_TRUE(send_parts(kit_->sender(), 1, {32, 10}, seconds(5), false).ok());
  kit_.reset();
  ASSERT_TRUE(reader->open_stream(1).ok());
  EXPECT_TRUE(receive_parts(*reader, 1, {32, 10}, seconds(20), false).ok());
  const Instant start = in(seconds(0));
  const Result<transport::Run> run = reader->receive(Part::kHeader, 32, {}, in(seconds(20)));
  EXPECT_LT(in(seconds(0)) - start, seconds(2));
  EXPECT_EQ(run.status().code(), Code::kUnavailable);
  EXPECT_THAT(run.status().message(), HasSubstr(": 42 bytes had arrived"));
}

TEST_P(LiveRoad, R3_ReaderLeftInAnAbortedStreamLearnsOfTheNext) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 1}));
  SendRoad& sender = kit_->sender();
  const auto reader = kit_->open_reader(0).take();
  ASSERT_TRUE(reader->open_stream(1).ok());
  ASSERT_TRUE(sender.open_stream(kit_->all(), 1).ok());
  ASSERT_TRUE(send_parts(sender, 1, {32}, seconds(5), false).ok());
  ASSERT_TRUE(receive_parts(*reader, 1, {32}, seconds(5), false).ok());
  ASSERT_TRUE(sender.open_stream(kit_->all(), 2).ok());
  ASSERT_TRUE(send_parts(sender, 2, {32, 50}, seconds(5), false).ok());
  const Result<transport::Run> run = reader->receive(Part::kPayload, 100, {}, in(seconds(20)));
  EXPECT_EQ(run.status().code(), Code::kUnavailable);
  EXPECT_THAT(run.status().message(),
              HasSubstr("began its next stream before the end of this one"));
  ASSERT_TRUE(reader->open_stream(2).ok());
  EXPECT_TRUE(receive_parts(*reader, 2, {32, 50}, seconds(5), false).ok());
}

TEST_P(LiveRoad, PeerThatIsNotAttachedIsNamed) {
  ASSERT_NO_FATAL_FAILURE(make({.readers = 1}));
  const std::vector<uint32_t> peers = {0, 9};
  EXPECT_TRUE(kit_->sender().open_stream(peers, 1).ok());
  const std::vector<PeerFailure> failures = kit_->sender().take_failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].peer, 9u);
  EXPECT_EQ(kit_->sender().open_stream(std::vector<uint32_t>{9}, 2).code(), Code::kUnavailable);
  EXPECT_EQ(kit_->sender().open_stream(kit_->all(), 2).code(), Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(All, LiveRoad, testing::ValuesIn(roads(true)), param_name);

}  // namespace
}  // namespace changeover::transport
