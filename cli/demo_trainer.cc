#include "cli/demo_trainer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <changeover/checkpoint.h>
#include <changeover/publisher.h>

#include <fmt/core.h>
#include <unistd.h>

#include "cli/emit.h"

namespace changeover::cli {
namespace {

// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014), its output function.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr size_t kAlign = 64;  // Of each tensor in the trainer's memory.

struct Place {
  size_t begin = 0;
  size_t end = 0;
};

class Trainer {
 public:
  Trainer(const TrainerOptions& options, int read_fd, int write_fd)
      : options_(options), in_(fdopen(read_fd, "r")), out_(fdopen(write_fd, "w")) {}
  ~Trainer() {
    std::fclose(in_);
    std::fclose(out_);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  Status start() {
    CHANGEOVER_TRY(load());
    PublisherOptions publisher;
    CHANGEOVER_TRY_ASSIGN(publisher.endpoint, Endpoint::parse(options_.endpoint));
    CHANGEOVER_TRY_ASSIGN(publisher_, Publisher::open(std::move(publisher)));
    say(fmt::format("endpoint {} {} {}", publisher_->endpoint().to_string(), specs_.size(),
                    bytes_total_));
    return {};
  }

  void serve() {
    std::string line;
    while (read_line(line)) {
      char path[4096] = {};
      long long version = 0;
      if (std::sscanf(line.c_str(), "publish %lld", &version) == 1) {
        publish(version, line.ends_with(" hold"));
      } else if (std::sscanf(line.c_str(), "save %4095[^\n]", path) == 1) {
        const Status status = write_safetensors(path, tensors(), metadata_);
        say(status.ok() ? "saved" : "error " + status.message());
      }
    }
  }

  void say(const std::string& line) {
    emit(out_, "{}\n", line);
    std::fflush(out_);
  }

 private:
  bool read_line(std::string& line) {
    line.clear();
    for (int c = std::fgetc(in_); c != EOF; c = std::fgetc(in_)) {
      if (c == '\n') {
        return true;
      }
      line += static_cast<char>(c);
    }
    return false;
  }

  // The trainer's own copy of the weights, which it changes in place.
  Status load() {
    CHANGEOVER_TRY_ASSIGN(const auto checkpoint, Checkpoint::open(options_.model));
    const auto specs = checkpoint->specs();
    specs_.assign(specs.begin(), specs.end());
    metadata_ = checkpoint->metadata();
    size_t end = 0;
    for (const TensorSpec& spec : specs_) {
      CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(spec.dtype, spec.shape));
      const size_t begin = (end + kAlign - 1) / kAlign * kAlign;
      end = begin + static_cast<size_t>(bytes);
      places_.push_back({begin, end});
      bytes_total_ += static_cast<uint64_t>(bytes);
    }
    memory_.resize(end);
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (places_[i].end > places_[i].begin) {
        std::memcpy(memory_.data() + places_[i].begin, checkpoint->view(i).data,
                    places_[i].end - places_[i].begin);
      }
    }
    return {};
  }

  std::vector<NamedTensor> tensors() const {
    std::vector<NamedTensor> tensors;
    for (size_t i = 0; i < specs_.size(); ++i) {
      tensors.push_back(
          {specs_[i].name,
           {specs_[i].dtype, specs_[i].shape, {}, memory_.data() + places_[i].begin}});
    }
    return tensors;
  }

  // The synthetic update: flips the last bit of about one weight in 64, chosen by the seed.
  void change(int64_t version) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      const size_t item = static_cast<size_t>(std::max(dtype_bytes(specs_[i].dtype), 1));
      uint64_t state = mix(options_.seed ^ mix(static_cast<uint64_t>(version)) ^ mix(i));
      for (size_t at = places_[i].begin + (state % 64) * item; at < places_[i].end;
           at += (1 + state % 127) * item) {
        memory_[at] ^= std::byte{1};
        state = mix(state);
      }
    }
  }

  void publish(int64_t version, bool hold) {
    if (version > 1) {
      change(version);
    }
    const auto source = make_memory_source(tensors(), /*may_change=*/false);
    if (!source.ok()) {
      say("error " + source.status().message());
      return;
    }
    PublishOptions options;
    options.version = {0, version};
    options.bucket_bytes = 32 << 20;
    options.ranks_min = options_.ranks;
    options.ready.emplace<ReadyNow>();
    bool held = !hold;
    auto last = std::chrono::steady_clock::time_point();
    options.on_progress = [&](uint64_t sent, uint64_t total) {
      const auto now = std::chrono::steady_clock::now();
      if (now - last > std::chrono::milliseconds(50)) {
        last = now;
        say(fmt::format("progress {} {}", sent, total));
      }
      if (!held && sent * 2 >= total) {
        held = true;
        say("half");
        std::string go;
        read_line(go);
      }
    };
    const auto report = publisher_->publish(**source, options);
    say(report.ok() ? "report " + update_report_to_json(*report)
                    : "error " + report.status().message());
  }

  const TrainerOptions options_;
  std::FILE* in_;
  std::FILE* out_;
  std::vector<TensorSpec> specs_;
  std::vector<Place> places_;  // Of each tensor in memory_.
  uint64_t bytes_total_ = 0;
  std::vector<std::byte> memory_;
  std::map<std::string, std::string> metadata_;
  std::unique_ptr<Publisher> publisher_;
};

}  // namespace

int run_trainer(const TrainerOptions& options, int read_fd, int write_fd) {
  Trainer trainer(options, read_fd, write_fd);
  if (const Status status = trainer.start(); !status.ok()) {
    trainer.say("error " + status.message());
    return 1;
  }
  trainer.serve();
  return 0;
}

}  // namespace changeover::cli
