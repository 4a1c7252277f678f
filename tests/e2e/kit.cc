#include "tests/e2e/kit.h"

#include <atomic>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace changeover::e2e {
namespace {

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.status().to_string();
    std::abort();
  }
  return std::move(result).take();
}

void must(const Status& status) {
  if (!status.ok()) {
    ADD_FAILURE() << status.to_string();
    std::abort();
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "changeover_e2e_XXXXXX").string();
  path_ = mkdtemp(name.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Model::Model(bool tp_any, bool tied) {
  path_ = folder_.emplace().path();
  const int heads = tp_any ? 4 : 6;
  const int kv_heads = tp_any ? 4 : 3;
  std::ofstream(path_ / "config.json")
      << R"({"architectures":["LlamaForCausalLM"],"torch_dtype":"bfloat16",)"
      << R"("hidden_size":24,"intermediate_size":36,"num_hidden_layers":2,"vocab_size":50,)"
      << R"("head_dim":4,"num_attention_heads":)" << heads << R"(,"num_key_value_heads":)"
      << kv_heads << R"(,"tie_word_embeddings":)" << (tied ? "true" : "false") << "}";
  for (const Source& source : plan(0, 1).sources) {
    specs_.push_back(source.spec);
  }
}

Model::Model(const std::filesystem::path& folder) : path_(folder) {
  for (const Source& source : plan(0, 1).sources) {
    specs_.push_back(source.spec);
  }
}

LoadPlan Model::plan(int rank, int tp) const {
  PlanOptions options;
  options.tp_rank = rank;
  options.tp_size = tp;
  return must(make_load_plan(path_, options));
}

std::vector<std::vector<std::byte>>& Model::memory(int64_t version) const {
  auto& memory = memory_[version];
  if (memory.empty()) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      memory.emplace_back(must(byte_count(specs_[i].dtype, specs_[i].shape)));
      uint64_t state = static_cast<uint64_t>(version) * 1000003 + i * 7919 + 1;
      for (std::byte& byte : memory.back()) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        byte = static_cast<std::byte>(state >> 56);
      }
    }
  }
  return memory;
}

std::vector<NamedTensor> Model::tensors(int64_t version) const {
  std::vector<NamedTensor> out;
  const auto& bytes = memory(version);
  for (size_t i = 0; i < specs_.size(); ++i) {
    out.push_back({specs_[i].name, {specs_[i].dtype, specs_[i].shape, {}, bytes[i].data()}});
  }
  return out;
}

std::unique_ptr<TensorSource> Model::source(int64_t version, bool may_change) const {
  return must(make_memory_source(tensors(version), may_change));
}

std::vector<Digest> Model::expected(int64_t version, int rank, int tp) const {
  const auto file = path_ / ("v" + std::to_string(version) + ".safetensors");
  must(write_safetensors(file, tensors(version), {}));
  auto checkpoint = must(Checkpoint::open(file));
  return live_digests(*must(cold_load(plan(rank, tp), *checkpoint)));
}

uint64_t Model::payload_bytes() const {
  uint64_t bytes = 0;
  for (const TensorSpec& spec : specs_) {
    bytes += static_cast<uint64_t>(must(byte_count(spec.dtype, spec.shape)));
  }
  return bytes;
}

uint64_t Model::largest_tensor_bytes() const {
  uint64_t bytes = 0;
  for (const TensorSpec& spec : specs_) {
    bytes = std::max(bytes, static_cast<uint64_t>(must(byte_count(spec.dtype, spec.shape))));
  }
  return bytes;
}

std::function<void(std::string_view)> Log::sink() {
  return [this](std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
  };
}

std::string Log::all() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& line : lines_) {
    out += line + "\n";
  }
  return out;
}

bool Log::has(const std::string& text) const {
  return all().find(text) != std::string::npos;
}

Rank::Rank(const Model& model, const Endpoint& endpoint, RankOptions options, bool start)
    : model_(model), options_(std::move(options)) {
  SubscriberOptions subscriber = options_.subscriber;
  subscriber.endpoint = endpoint;
  subscriber.engine = options_.engine;
  subscriber.rank = options_.rank;
  subscriber.engine_size = options_.tp;
  subscriber.mode = options_.mode;
  if (!subscriber.log) {
    subscriber.log = log_.sink();
  }
  const LoadPlan plan = model.plan(options_.rank, options_.tp);
  store_ = must(ParameterStore::allocate(plan));
  subscriber_ = must(Subscriber::open(subscriber, plan, *store_));
  if (start) {
    must(subscriber_->start());
  }
}

testing::AssertionResult Rank::serves(int64_t version) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const auto left = until - std::chrono::steady_clock::now();
    auto guard = subscriber_->fence().acquire(left);
    if (!guard.ok()) {
      return testing::AssertionFailure() << guard.status().to_string() << "\n" << log_.all();
    }
    if (guard->version().version == version) {
      return testing::AssertionSuccess();
    }
    if (left < std::chrono::seconds(0)) {
      return testing::AssertionFailure() << "serves version " << guard->version().version;
    }
    guard->release();
    std::this_thread::yield();
  }
}

testing::AssertionResult Rank::holds(int64_t version) {
  const auto live = live_digests(*store_, subscriber_->fence().half());
  const auto expected = model_.expected(version, options_.rank, options_.tp);
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i] != expected[i]) {
      return testing::AssertionFailure()
             << store_->parameters()[i].spec.name << " is not version " << version << "'s";
    }
  }
  return testing::AssertionSuccess();
}

Deadlines short_deadlines() {
  Deadlines out;
  out.connect = std::chrono::seconds(2);
  out.begin = std::chrono::seconds(1);
  out.stall = std::chrono::seconds(1);
  out.vote = std::chrono::seconds(1);
  out.drain = std::chrono::milliseconds(500);
  return out;
}

PublisherOptions publisher_options(const std::string& road) {
  static std::atomic<int> counter{0};
  PublisherOptions out;
  const std::string at =
      road == "shm" ? "shm:e2e." + std::to_string(getpid()) + "." + std::to_string(counter++)
                    : "tcp:127.0.0.1:0";
  out.endpoint = must(Endpoint::parse(at));
  out.ring_slot_bytes = 64 << 10;
  out.ring_slots = 4;
  return out;
}

std::unique_ptr<Publisher> open_publisher(const PublisherOptions& options) {
  return must(Publisher::open(options));
}

PublishOptions publish_options(int64_t version, uint32_t ranks, uint64_t bucket_bytes) {
  PublishOptions out;
  out.ready.emplace<ReadyNow>();
  out.version = {0, version};
  out.ranks_min = ranks;
  out.ranks_timeout = std::chrono::seconds(10);
  out.bucket_bytes = bucket_bytes;
  return out;
}

}  // namespace changeover::e2e
