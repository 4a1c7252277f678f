// A small model, ranks and publishers for tests through the public API alone.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <changeover/checkpoint.h>
#include <changeover/parameter_store.h>
#include <changeover/publisher.h>
#include <changeover/subscriber.h>

#include <gtest/gtest.h>

namespace changeover::e2e {

// A folder that goes with its object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A two-layer Llama whose dimensions differ pairwise: 6 query and 3 KV heads, so tp 1 or 3 (and 2,
// where KV heads are not split evenly, is refused); with `tp_any` 4 of each, so 1, 2 or 4.
class Model {
 public:
  explicit Model(bool tp_any = false, bool tied = true);
  // The model of another process.
  explicit Model(const std::filesystem::path& folder);

  LoadPlan plan(int rank, int tp) const;
  // Version `version`'s weights: every byte depends on version, tensor and place.
  std::vector<NamedTensor> tensors(int64_t version) const;
  std::unique_ptr<TensorSource> source(int64_t version, bool may_change = false) const;
  // The digests a cold load of that version gives this rank.
  std::vector<Digest> expected(int64_t version, int rank, int tp) const;
  const std::filesystem::path& folder() const { return path_; }
  uint64_t payload_bytes() const;
  uint64_t largest_tensor_bytes() const;
  // The memory behind tensors(version).
  std::vector<std::vector<std::byte>>& memory(int64_t version) const;

 private:
  std::optional<TemporaryFolder> folder_;
  std::filesystem::path path_;
  std::vector<TensorSpec> specs_;
  mutable std::map<int64_t, std::vector<std::vector<std::byte>>> memory_;
};

// Log lines of a publisher or a rank.
class Log {
 public:
  std::function<void(std::string_view)> sink();
  bool has(const std::string& text) const;
  std::string all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

struct RankOptions {
  std::string engine = "a";
  int rank = 0;
  int tp = 1;
  Mode mode = Mode::kJournal;
  SubscriberOptions subscriber;  // endpoint, token, job, deadlines, hooks
};

class Rank {
 public:
  Rank(const Model& model, const Endpoint& endpoint, RankOptions options, bool start = true);
  Subscriber& operator*() { return *subscriber_; }
  Subscriber* operator->() { return subscriber_.get(); }
  ParameterStore& store() { return *store_; }
  Log& log() { return log_; }
  // Waits (up to ten seconds) until the gate is open on this version.
  testing::AssertionResult serves(int64_t version);
  testing::AssertionResult holds(int64_t version);  // byte for byte as a cold load

 private:
  const Model& model_;
  RankOptions options_;
  Log log_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Subscriber> subscriber_;
};

// Short deadlines for tests that let them pass.
Deadlines short_deadlines();

PublisherOptions publisher_options(const std::string& road);  // "tcp" or "shm", a fresh address
std::unique_ptr<Publisher> open_publisher(const PublisherOptions& options);
PublishOptions publish_options(int64_t version, uint32_t ranks, uint64_t bucket_bytes = 1 << 20);

}  // namespace changeover::e2e
