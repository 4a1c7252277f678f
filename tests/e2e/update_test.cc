// Whole updates: one publisher, several ranks, real sockets and threads.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/ways.h"

namespace changeover::e2e {
namespace {

using ::testing::HasSubstr;

class UpdateOver : public OverEveryWay {};

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

// Bucket sizes of one tensor, one byte over the largest, and everything; one to four ranks; fused
// parts of one parameter arrive in different frames (case B12). Three rounds each.
TEST_P(UpdateOver, CaseB12_BucketSizeNeverChangesTheResult) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank alone(model, publisher->endpoint(), rank("one", 0, 1));
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < 4; ++i) {
    ranks.push_back(std::make_unique<Rank>(model, publisher->endpoint(), rank("four", i, 4)));
  }
  int64_t version = 0;
  for (const uint64_t bucket : {uint64_t{1}, model.largest_tensor_bytes() + 1, uint64_t{1} << 30}) {
    for (int round = 0; round < 3; ++round) {
      ++version;
      const auto report =
          publisher->publish(*model.source(version), publish_options(version, 5, bucket));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      ASSERT_TRUE(report->status.ok()) << report->status.to_string();
      EXPECT_EQ(report->payload_bytes, model.payload_bytes());
      EXPECT_EQ(report->ranks.size(), 5u);
      for (auto& each : ranks) {
        EXPECT_TRUE(each->serves(version) && each->holds(version)) << "bucket " << bucket;
      }
      EXPECT_TRUE(alone.serves(version) && alone.holds(version));
    }
  }
}

TEST_P(UpdateOver, CaseB38_StaleVersionsAreRefusedAndTheSameOneIsCheckedByDigest) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank only(model, publisher->endpoint(), rank("a", 0, 1));
  const auto publish = [&](int64_t version, int64_t content) {
    const auto report = publisher->publish(*model.source(content), publish_options(version, 1));
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return *report;
  };
  ASSERT_TRUE(publish(37, 37).status.ok());
  const auto zero = publish(0, 0);
  EXPECT_FALSE(zero.status.ok());
  EXPECT_THAT(zero.status.message(), HasSubstr("37"));
  EXPECT_FALSE(publish(36, 36).status.ok());
  const auto again = publish(37, 37);
  EXPECT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_EQ(again.ranks.at(0).outcome, RankOutcome::kAlreadyThere);
  EXPECT_FALSE(publish(37, 5).status.ok());
  EXPECT_TRUE(only.serves(37) && only.holds(37));
  EXPECT_FALSE(only->status().fenced);
  EXPECT_TRUE(publish(38, 38).status.ok());
  EXPECT_TRUE(only.serves(38) && only.holds(38));
  // Going back needs a higher epoch, given explicitly.
  auto back = publish_options(5, 1);
  back.version.epoch = 1;
  const auto report = publisher->publish(*model.source(5), back);
  EXPECT_TRUE(report.ok() && report->status.ok());
  EXPECT_TRUE(only.serves(5) && only.holds(5));
  EXPECT_FALSE(publish(39, 39).status.ok()) << "of the older epoch";
}

TEST_P(UpdateOver, CaseB37_OneVersionNumberOnEveryRoad) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank only(model, publisher->endpoint(), rank("a", 0, 1));
  EXPECT_FALSE(only->status().version.has_value());
  EXPECT_THAT(only->fence().acquire(std::chrono::nanoseconds(0)).status().message(),
              HasSubstr("version"));
  const auto report = publisher->publish(*model.source(1), publish_options(1, 1));
  ASSERT_TRUE(report.ok() && report->status.ok());
  ASSERT_TRUE(only.serves(1));
  EXPECT_EQ(report->ranks.at(0).version, (VersionStamp{0, 1}));
  EXPECT_EQ(report->ranks.at(0).road, road());
  EXPECT_TRUE(report->ranks.at(0).digest_checked);
  EXPECT_EQ(report->ranks.at(0).digest, report->digest);
}

// Rules U1 and U2: a producer that writes while its weights are published is found.
TEST_P(UpdateOver, U1_CaseN3_ASourceThatChangesFailsTheUpdate) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank only(model, publisher->endpoint(), rank("a", 0, 1));
  ASSERT_TRUE(publisher->publish(*model.source(1), publish_options(1, 1))->status.ok());
  auto how = publish_options(2, 1, 1);
  bool changed = false;
  how.on_progress = [&](uint64_t, uint64_t) {
    if (!changed) {
      changed = true;
      model.memory(2)[0][0] ^= std::byte{1};  // The first tensor has been sent.
    }
  };
  const auto report = publisher->publish(*model.source(2, true), how);
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->status.ok());
  EXPECT_THAT(report->status.message(), HasSubstr("changed while it was published"));
  // In place it depends on how far the rank had come when it was told.
  if (mode() == Mode::kInPlace && report->ranks.at(0).outcome == RankOutcome::kFenced) {
    EXPECT_FALSE(only->fence().acquire(std::chrono::seconds(0)).ok());
  } else {
    EXPECT_TRUE(only.serves(1) && only.holds(1));
  }
  EXPECT_TRUE(publisher->publish(*model.source(3, true), publish_options(3, 1))->status.ok());
  EXPECT_TRUE(only.serves(3) && only.holds(3));
}

// A rank may go between the wait for all and the begin: the trainer asked for four.
TEST_P(UpdateOver, M5_ARankThatLeavesBeforeTheBeginIsNamedAndNobodyCommits) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank a0(model, publisher->endpoint(), rank("a", 0, 2));
  Rank a1(model, publisher->endpoint(), rank("a", 1, 2));
  Rank b0(model, publisher->endpoint(), rank("b", 0, 2));
  Rank b1(model, publisher->endpoint(), rank("b", 1, 2));
  ASSERT_TRUE(publisher->wait_for_ranks(4, std::chrono::seconds(10)).ok());
  auto how = publish_options(1, 4);
  how.ranks_timeout = std::chrono::milliseconds(200);
  how.ready = ReadyEvent([&](std::chrono::nanoseconds) {
    b1->stop();
    while (publisher->peers().size() == 4) {
      std::this_thread::yield();
    }
    return Status();
  });
  const auto report = publisher->publish(*model.source(1), how);
  const Status status = report.ok() ? report->status : report.status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("missing: b/1"));
  EXPECT_FALSE(a0->status().version || b0->status().version);

  how = publish_options(1, 2);
  const auto part = publisher->publish(*model.source(1), how);
  ASSERT_TRUE(part.ok() && part->status.ok());
  ASSERT_EQ(part->ranks.size(), 3u);
  EXPECT_EQ(part->ranks[2].rank.to_text(), "b/0");
  EXPECT_EQ(part->ranks[2].outcome, RankOutcome::kLeftOut);
}

TEST_P(UpdateOver, U1_CaseN3_PublishWaitsForTheReadyEvent) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank only(model, publisher->endpoint(), rank("a", 0, 1));
  auto how = publish_options(1, 1);
  how.ready.emplace<std::monostate>();
  const Status unsaid = publisher->publish(*model.source(1), how).status();
  EXPECT_EQ(unsaid.code(), Code::kInvalidArgument);
  EXPECT_THAT(unsaid.message(), HasSubstr("rule U1"));
  how.ready = ReadyEvent([](std::chrono::nanoseconds) { return Status(Code::kDeadline, "busy"); });
  EXPECT_EQ(publisher->publish(*model.source(1), how).status().code(), Code::kDeadline);
  EXPECT_FALSE(only->status().version.has_value());
  bool asked = false;
  how.ready = ReadyEvent([&](std::chrono::nanoseconds) {
    asked = true;
    return Status();
  });
  EXPECT_TRUE(publisher->publish(*model.source(1), how)->status.ok());
  EXPECT_TRUE(asked);
}

// Case B60: readers checksum the live weights all along; every checksum is of a whole version.
TEST_P(UpdateOver, T7_CaseB60_EveryReaderSeesOneWholeVersion) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank only(model, publisher->endpoint(), rank("a", 0, 1));
  ASSERT_TRUE(publisher->publish(*model.source(1), publish_options(1, 1))->status.ok());
  std::map<int64_t, std::vector<Digest>> expected;
  for (int64_t version = 1; version <= 6; ++version) {
    expected[version] = model.expected(version, 0, 1);
  }
  std::atomic<bool> done{false};
  std::atomic<int> reads{0};
  std::atomic<int> mixed{0};
  std::thread reader([&] {
    while (!done) {
      auto guard = only->fence().acquire(std::chrono::milliseconds(50));
      if (guard.ok()) {
        ++reads;
        mixed += live_digests(only.store(), guard->half()) != expected[guard->version().version];
      }
    }
  });
  for (int64_t version = 2; version <= 6; ++version) {
    const int before = reads;
    EXPECT_TRUE(
        publisher->publish(*model.source(version), publish_options(version, 1, 1))->status.ok());
    EXPECT_TRUE(only.serves(version));
    while (reads == before) {
      std::this_thread::yield();
    }
  }
  done = true;
  reader.join();
  EXPECT_EQ(mixed, 0);
}

// Case B60: a step that never ends is named, and the old version stays.
TEST_P(UpdateOver, T7_CaseB60_AnEndlessStepIsADeadlineNotAHang) {
  const Model model(true);
  auto options = publisher_options(road());
  auto publisher = open_publisher(options);
  auto slow = rank("a", 0, 1);
  slow.subscriber.deadlines.drain = std::chrono::milliseconds(50);
  slow.subscriber.deadlines.begin = std::chrono::milliseconds(200);
  Rank only(model, publisher->endpoint(), slow);
  ASSERT_TRUE(publisher->publish(*model.source(1), publish_options(1, 1))->status.ok());
  ASSERT_TRUE(only.serves(1));
  auto endless = only->fence().acquire(std::chrono::seconds(1));
  ASSERT_TRUE(endless.ok());
  auto report = publisher->publish(*model.source(2), publish_options(2, 1));
  ASSERT_TRUE(report.ok());
  if (mode() == Mode::kSwap) {
    // Its half is not needed before the next update: that one's begin is refused, and names it.
    EXPECT_TRUE(report->status.ok()) << report->status.to_string();
    EXPECT_TRUE(only.serves(2) && only.holds(2));
    EXPECT_EQ(live_digests(only.store(), endless->half()), model.expected(1, 0, 1));
    report = publisher->publish(*model.source(3), publish_options(3, 1));
    ASSERT_TRUE(report.ok());
    EXPECT_THAT(report->status.message(), HasSubstr("1 guard(s) of the old half"));
    EXPECT_TRUE(only.serves(2) && only.holds(2));
    endless->release();
    EXPECT_TRUE(publisher->publish(*model.source(4), publish_options(4, 1))->status.ok());
    EXPECT_TRUE(only.serves(4) && only.holds(4));
    return;
  }
  EXPECT_THAT(report->status.message(), HasSubstr("step"));
  EXPECT_TRUE(only.holds(1));
  EXPECT_FALSE(only->status().fenced);
  endless->release();
  EXPECT_TRUE(publisher->publish(*model.source(3), publish_options(3, 1))->status.ok());
  EXPECT_TRUE(only.serves(3) && only.holds(3));
}

// Cases B01, B02: one rank refuses; the publisher gets its own words, the others are on the old
// version, and the next begin succeeds at once.
TEST_P(UpdateOver, CaseB01_CaseB02_ARefusalReachesThePublisherInTheRanksOwnWords) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  auto narrow = rank("a", 1, 2);
  narrow.subscriber.payload_bytes_max = 4096;  // It takes no larger frame.
  Rank first(model, publisher->endpoint(), rank("a", 0, 2));
  Rank second(model, publisher->endpoint(), narrow);
  const auto report = publisher->publish(*model.source(1), publish_options(1, 2));
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->status.message(), HasSubstr("a/1"));
  EXPECT_THAT(report->status.message(), HasSubstr("4096"));
  const auto again = publisher->publish(*model.source(1), publish_options(1, 2, 1));
  EXPECT_TRUE(again->status.ok()) << again->status.to_string();
  EXPECT_TRUE(first.serves(1) && first.holds(1) && second.serves(1) && second.holds(1));
}

// Cases B02, B12: a stream that lacks a tensor is refused at its end, naming parameter and part.
TEST_P(UpdateOver, T5_CaseB12_AMissingTensorIsNamed) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank only(model, publisher->endpoint(), rank("a", 0, 1));
  ASSERT_TRUE(publisher->publish(*model.source(1), publish_options(1, 1))->status.ok());
  auto tensors = model.tensors(2);
  std::erase_if(tensors, [](const NamedTensor& tensor) {
    return tensor.name == "model.layers.1.self_attn.v_proj.weight";
  });
  auto source = make_memory_source(tensors, false);
  const auto report = publisher->publish(**source, publish_options(2, 1));
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->status.message(), HasSubstr("layers.1.self_attn.qkv_proj"));
  EXPECT_THAT(report->status.message(), HasSubstr("v"));
  if (mode() != Mode::kInPlace) {
    EXPECT_TRUE(only.serves(1) && only.holds(1));
  }
  EXPECT_TRUE(publisher->publish(*model.source(3), publish_options(3, 1))->status.ok());
  EXPECT_TRUE(only.serves(3) && only.holds(3));
}

INSTANTIATE_TEST_SUITE_P(Ways, UpdateOver, every_way(), way_name);

}  // namespace
}  // namespace changeover::e2e
