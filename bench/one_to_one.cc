// One publisher, one rank, each a process: the whole update, over shared memory or loopback.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/parameter_store.h>
#include <changeover/publisher.h>
#include <changeover/subscriber.h>

#include <unistd.h>

#include "bench/bench.h"
#include "bench/limits.h"
#include "bench/process.h"

namespace changeover::bench {
namespace {

// Qwen3-0.6B's config, as far as shapes go: 310 tensors, 1.19 GB. The small one has its form.
constexpr const char* kConfig = R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3",
"hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,"num_attention_heads":16,
"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":true,
"torch_dtype":"bfloat16"})";
constexpr const char* kConfigSmall = R"({"architectures":["Qwen3ForCausalLM"],
"model_type":"qwen3","hidden_size":128,"intermediate_size":384,"num_hidden_layers":4,
"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"vocab_size":1024,
"tie_word_embeddings":true,"torch_dtype":"bfloat16"})";

Result<LoadPlan> dense_plan(bool small) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("changeover-bench-" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << (small ? kConfigSmall : kConfig);
  auto plan = make_load_plan(path, {});
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return plan;
}

// What the rank tells its publisher: memory before and at the peak of the steady updates.
struct Memory {
  uint64_t before = 0;
  uint64_t peak = 0;
};

// Commands from the publisher, a byte each: R = steady updates begin, M = tell the memory.
int serve(int fd, const LoadPlan& plan, Mode mode) {
  std::array<char, 256> endpoint = {};
  if (!read_all(fd, endpoint.data(), endpoint.size())) {
    return 1;
  }
  auto store = ParameterStore::allocate(plan);
  SubscriberOptions options;
  options.engine = "bench";
  options.mode = mode;
  if (auto parsed = Endpoint::parse(endpoint.data()); store.ok() && parsed.ok()) {
    options.endpoint = *parsed;
  } else {
    return 1;
  }
  auto subscriber = Subscriber::open(options, plan, **store);
  if (!subscriber.ok() || !(*subscriber)->start().ok()) {
    return 1;
  }
  Memory memory;
  for (char command = 0; read_all(fd, &command, 1);) {
    if (command == 'R') {
      reset_peak();
      memory.before = resident_bytes();
    } else {
      memory.peak = peak_bytes();
    }
    if (!write_all(fd, &memory, sizeof memory)) {
      break;
    }
  }
  return 0;
}

struct Model {
  std::vector<std::byte> bytes;
  std::vector<NamedTensor> tensors;
};

Result<Model> make_model(const LoadPlan& plan) {
  Model model;
  std::vector<size_t> offsets;
  size_t total = 0;
  for (const Source& source : plan.sources) {
    CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(source.spec.dtype, source.spec.shape));
    offsets.push_back(total);
    total += static_cast<size_t>(bytes);
  }
  model.bytes.resize(total);
  uint64_t state = 1;
  for (size_t at = 0; at + 8 <= total; at += 8) {
    state = state * 6364136223846793005 + 1442695040888963407;
    std::memcpy(model.bytes.data() + at, &state, 8);
  }
  for (size_t i = 0; i < plan.sources.size(); ++i) {
    const TensorSpec& spec = plan.sources[i].spec;
    model.tensors.push_back(
        {spec.name, {spec.dtype, spec.shape, {}, model.bytes.data() + offsets[i]}});
  }
  return model;
}

Result<Memory> ask(const Partner& rank, char command) {
  Memory memory;
  if (!write_all(rank.fd(), &command, 1) || !read_all(rank.fd(), &memory, sizeof memory)) {
    return Status(Code::kUnavailable, "the rank process of the benchmark is gone");
  }
  return memory;
}

Result<UpdateReport> publish(Publisher& publisher, const Model& model, int64_t version,
                             bool digests) {
  CHANGEOVER_TRY_ASSIGN(const auto source, make_memory_source(model.tensors, false));
  PublishOptions options;
  options.version = {0, version};
  options.digests = digests;
  options.ready.emplace<ReadyNow>();
  CHANGEOVER_TRY_ASSIGN(auto report, publisher.publish(*source, options));
  CHANGEOVER_TRY(report.status);
  return report;
}

Status measure(Publisher& publisher, const Model& model, const Options& options,
               const Partner& rank, Figure& figure) {
  CHANGEOVER_TRY_ASSIGN(const auto first, publish(publisher, model, 1, options.digests));
  figure.first_seconds = first.seconds;
  figure.payload_bytes = first.payload_bytes;
  CHANGEOVER_TRY_ASSIGN(const Memory before, ask(rank, 'R'));
  reset_peak();
  const uint64_t resident = resident_bytes();
  for (int round = 0; round < options.rounds; ++round) {
    CHANGEOVER_TRY_ASSIGN(const auto report, publish(publisher, model, round + 2, options.digests));
    figure.seconds.push_back(report.seconds);
    figure.pause_seconds.push_back(report.ranks.empty() ? 0 : report.ranks[0].seconds.pause);
  }
  figure.publisher_extra_bytes = peak_bytes() - std::min(peak_bytes(), resident);
  CHANGEOVER_TRY_ASSIGN(const Memory after, ask(rank, 'M'));
  figure.rank_extra_bytes = after.peak - std::min(after.peak, before.before);
  return {};
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

double rate(uint64_t bytes, const std::vector<double>& seconds) {
  const double middle = median(seconds);
  return middle > 0 ? static_cast<double>(bytes) / middle : 0;
}

}  // namespace

double Figure::bytes_per_second() const {
  return rate(payload_bytes, seconds);
}
double Figure::limit_bytes_per_second() const {
  return rate(payload_bytes, limit_seconds);
}

std::vector<std::string> names() {
  return {"shm_1to1_dense", "tcp_1to1_dense"};
}

namespace {

Result<Figure> run_updates(bool shm, const LoadPlan& plan, const Model& model,
                           const Options& options) {
  // The rank is forked before the publisher starts its thread.
  CHANGEOVER_TRY_ASSIGN(const auto rank,
                        Partner::start([&](int fd) { return serve(fd, plan, options.mode); }));
  PublisherOptions publisher_options;
  CHANGEOVER_TRY_ASSIGN(
      publisher_options.endpoint,
      Endpoint::parse(shm ? "shm:bench-" + std::to_string(getpid()) : "tcp:127.0.0.1:0"));
  CHANGEOVER_TRY_ASSIGN(const auto publisher, Publisher::open(std::move(publisher_options)));
  std::array<char, 256> endpoint = {};
  publisher->endpoint().to_string().copy(endpoint.data(), endpoint.size() - 1);
  if (!write_all(rank->fd(), endpoint.data(), endpoint.size())) {
    return Status(Code::kUnavailable, "the rank process of the benchmark is gone");
  }
  Figure figure;
  CHANGEOVER_TRY(measure(*publisher, model, options, *rank, figure));
  return figure;
}

}  // namespace

Result<Figure> run(const std::string& name, const Options& options) {
  const auto known = names();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    return Status(Code::kInvalidArgument, "no benchmark is called '" + name + "'");
  }
  const bool shm = name == "shm_1to1_dense";
  CHANGEOVER_TRY_ASSIGN(const LoadPlan plan, dense_plan(options.small));
  CHANGEOVER_TRY_ASSIGN(const Model model, make_model(plan));
  const auto limit = shm ? shm_copy_limit : tcp_write_read_limit;
  CHANGEOVER_TRY_ASSIGN(const double limit_before, limit(model.bytes));
  CHANGEOVER_TRY_ASSIGN(Figure figure, run_updates(shm, plan, model, options));
  CHANGEOVER_TRY_ASSIGN(const double limit_after, limit(model.bytes));
  figure.name = name;
  figure.mode = options.mode;
  figure.digests = options.digests;
  figure.tensors = plan.sources.size();
  figure.limit = shm ? "copied in and out of one shared mapping" : "bare write and read, loopback";
  figure.limit_seconds = {limit_before, limit_after};
  return figure;
}

}  // namespace changeover::bench
