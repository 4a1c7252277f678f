#include "bench/fleet.h"

#include <algorithm>
#include <array>
#include <string>

#include <changeover/parameter_store.h>
#include <changeover/subscriber.h>

#include <sys/socket.h>
#include <unistd.h>

#include "os/clock.h"

namespace changeover::bench {
namespace {

// Commands from the publisher to a rank, a byte each; every one is answered when it is done.
constexpr char kWatch = 'W';   // From now on the peak counts.
constexpr char kMemory = 'M';  // Say it.
constexpr char kCopy = 'C';    // Take part in a pass of the bare copies.
constexpr char kVote = 'V';    // Take part in a bare vote.

Status gone() {
  return {Code::kUnavailable, "a rank process of the benchmark is gone"};
}

double seconds_since(Instant start) {
  return std::chrono::duration<double>(os::SystemClock().now() - start).count();
}

}  // namespace

Fleet::Fleet(const Model& model, const FleetOptions& options) : model_(model), options_(options) {}

Fleet::~Fleet() {
  publisher_.reset();
  for (const auto& ends : {vote_publisher_, vote_rank_}) {
    for (const int fd : ends) {
      ::close(fd);
    }
  }
}

Result<std::unique_ptr<Fleet>> Fleet::start(const Model& model, const FleetOptions& options) {
  std::unique_ptr<Fleet> fleet(new Fleet(model, options));
  CHANGEOVER_TRY(fleet->fork_ranks());
  CHANGEOVER_TRY(fleet->open());
  return fleet;
}

Result<Fleet::Two> Fleet::start_two(const Model& first, const FleetOptions& first_options,
                                    const Model& second, const FleetOptions& second_options) {
  Two two{std::unique_ptr<Fleet>(new Fleet(first, first_options)),
          std::unique_ptr<Fleet>(new Fleet(second, second_options))};
  CHANGEOVER_TRY(two.first->fork_ranks());
  CHANGEOVER_TRY(two.second->fork_ranks());
  CHANGEOVER_TRY(two.first->open());
  CHANGEOVER_TRY(two.second->open());
  return two;
}

Status Fleet::fork_ranks() {
  if (options_.tcp) {
    CHANGEOVER_TRY_ASSIGN(auto loopback, Loopback::make());
    loopback_.push_back(std::move(loopback));
  } else {
    CHANGEOVER_TRY_ASSIGN(auto ring, CopyRing::make(static_cast<uint32_t>(options_.ranks)));
    ring_.push_back(std::move(ring));
  }
  for (int rank = 0; rank < options_.ranks; ++rank) {
    std::array<int, 2> ends = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return {Code::kExhausted, "cannot make a socket pair"};
    }
    vote_publisher_.push_back(ends[0]);
    vote_rank_.push_back(ends[1]);
  }
  for (int rank = 0; rank < options_.ranks; ++rank) {
    CHANGEOVER_TRY_ASSIGN(auto partner,
                          Partner::start([this, rank](int fd) { return serve(rank, fd); }));
    ranks_.push_back(std::move(partner));
  }
  return {};
}

Status Fleet::open() {
  PublisherOptions options;
  CHANGEOVER_TRY_ASSIGN(options.endpoint,
                        Endpoint::parse(options_.tcp ? "tcp:127.0.0.1:0"
                                                     : "shm:bench-" + std::to_string(::getpid()) +
                                                           "-" + std::to_string(ranks_[0]->fd())));
  CHANGEOVER_TRY_ASSIGN(publisher_, Publisher::open(std::move(options)));
  std::array<char, 256> endpoint = {};
  publisher_->endpoint().to_string().copy(endpoint.data(), endpoint.size() - 1);
  for (const auto& rank : ranks_) {
    if (!write_all(rank->fd(), endpoint.data(), endpoint.size())) {
      return gone();
    }
  }
  return {};
}

int Fleet::serve(int rank, int fd) {
  std::array<char, 256> endpoint = {};
  if (!read_all(fd, endpoint.data(), endpoint.size())) {
    return 1;
  }
  auto store = ParameterStore::allocate(model_.plan);
  auto parsed = Endpoint::parse(endpoint.data());
  if (!store.ok() || !parsed.ok()) {
    return 1;
  }
  SubscriberOptions options;
  options.endpoint = *parsed;
  options.engine = options_.one_engine ? "bench" : "bench" + std::to_string(rank);
  options.rank = options_.one_engine ? rank : 0;
  options.engine_size = options_.one_engine ? options_.ranks : 1;
  options.mode = options_.mode;
  auto subscriber = Subscriber::open(options, model_.plan, **store);
  if (!subscriber.ok() || !(*subscriber)->start().ok()) {
    return 1;
  }
  // One region holds all parameters: at least the model's bytes.
  const std::span live((*store)->regions()[0].address, model_.bytes);
  Reply reply;
  for (char command = 0; read_all(fd, &command, 1);) {
    reply.failed = obey(rank, command, live, reply).ok() ? 0 : 1;
    if (!write_all(fd, &reply, sizeof reply)) {
      break;
    }
  }
  return 0;
}

Status Fleet::obey(int rank, char command, std::span<std::byte> live, Reply& reply) {
  switch (command) {
    case kWatch:
      reset_peak();
      reply.resident = resident_bytes();
      return {};
    case kMemory:
      reply.peak = peak_bytes();
      return {};
    case kCopy:
      if (options_.tcp) {
        return loopback_[0].read(live);
      }
      ring_[0].read(static_cast<uint32_t>(rank), live);
      return {};
    default:
      return vote_bare(rank, reply);
  }
}

// A yes there, a decision back, finished there.
Status Fleet::vote_bare(int rank, Reply& reply) const {
  const int fd = vote_rank_[static_cast<size_t>(rank)];
  char message = 'y';
  const Instant voted = os::SystemClock().now();
  if (!write_all(fd, &message, 1) || !read_all(fd, &message, 1)) {
    return gone();
  }
  reply.voted_seconds = seconds_since(voted);
  const Instant decided = os::SystemClock().now();
  if (!write_all(fd, &message, 1)) {
    return gone();
  }
  reply.finished_seconds = seconds_since(decided);
  return {};
}

Status Fleet::tell(char command) {
  for (const auto& rank : ranks_) {
    if (!write_all(rank->fd(), &command, 1)) {
      return gone();
    }
  }
  return {};
}

Result<std::vector<Fleet::Reply>> Fleet::answers() {
  std::vector<Reply> replies(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!read_all(ranks_[i]->fd(), &replies[i], sizeof(Reply)) || replies[i].failed != 0) {
      return gone();
    }
  }
  return replies;
}

Result<UpdateReport> Fleet::publish(bool digests) {
  CHANGEOVER_TRY_ASSIGN(const auto source, make_memory_source(model_.tensors, false));
  PublishOptions options;
  options.version = {0, ++version_};
  options.digests = digests;
  options.bucket_bytes = options_.bucket_bytes;
  options.ranks_min = static_cast<uint32_t>(options_.ranks);
  options.ready.emplace<ReadyNow>();
  CHANGEOVER_TRY_ASSIGN(auto report, publisher_->publish(*source, options));
  CHANGEOVER_TRY(report.status);
  return report;
}

Result<double> Fleet::limit_seconds() {
  const std::span source(model_.tensors[0].view.data, model_.bytes);
  const Instant start = os::SystemClock().now();
  CHANGEOVER_TRY(tell(kCopy));
  if (options_.tcp) {
    CHANGEOVER_TRY(loopback_[0].write(source));
  } else {
    ring_[0].write(source);
  }
  CHANGEOVER_TRY(answers().status());
  return seconds_since(start);
}

Result<double> Fleet::bare_vote_seconds() {
  CHANGEOVER_TRY(tell(kVote));
  for (const char message : {'y', 'f'}) {
    char got = message;
    for (const int fd : vote_publisher_) {
      if (!read_all(fd, &got, 1)) {
        return gone();
      }
    }
    for (const int fd : vote_publisher_) {
      if (message == 'y' && !write_all(fd, "d", 1)) {
        return gone();
      }
    }
  }
  CHANGEOVER_TRY_ASSIGN(const auto replies, answers());
  double voted = 0;
  double finished = 0;
  for (const Reply& reply : replies) {
    voted = std::max(voted, reply.voted_seconds);
    finished = std::max(finished, reply.finished_seconds);
  }
  return voted + finished;
}

Status Fleet::watch_memory() {
  CHANGEOVER_TRY(tell(kWatch));
  CHANGEOVER_TRY(answers().status());
  reset_peak();
  resident_ = resident_bytes();
  return {};
}

Result<MemoryUse> Fleet::memory() {
  MemoryUse use;
  use.publisher = peak_bytes() - std::min(peak_bytes(), resident_);
  CHANGEOVER_TRY(tell(kMemory));
  CHANGEOVER_TRY_ASSIGN(const auto replies, answers());
  for (const Reply& reply : replies) {
    use.rank = std::max(use.rank, reply.peak - std::min(reply.peak, reply.resident));
  }
  return use;
}

double vote_seconds(const UpdateReport& report) {
  double voted = 0;
  double finished = 0;
  for (const RankReport& rank : report.ranks) {
    voted = std::max(voted, rank.seconds.vote);
    finished = std::max(finished, rank.seconds.finish);
  }
  return voted + finished;
}

}  // namespace changeover::bench
