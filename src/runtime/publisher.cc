// Publisher: one update at a time, on the caller's thread.
#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <utility>

#include <changeover/publisher.h>

#include "os/entropy.h"
#include "runtime/callback.h"
#include "runtime/deadlines.h"
#include "runtime/publisher_core.h"
#include "runtime/roads.h"
#include "runtime/source_stream.h"

namespace changeover {
namespace {

using runtime::PublisherCore;
using Coordinator = protocol::Coordinator;

class PublisherImpl final : public Publisher {
 public:
  PublisherImpl(PublisherOptions options) : options_(std::move(options)) {}

  Status listen();

  const Endpoint& endpoint() const override { return core_->endpoint(); }
  std::vector<PeerStatus> peers() const override { return core_->peers(); }
  Status wait_for_ranks(uint32_t count, std::chrono::nanoseconds timeout) override {
    return core_->wait_for_ranks(count, timeout);
  }
  Result<UpdateReport> publish(TensorSource& source, const PublishOptions& options) override;

 private:
  Result<UpdateReport> publish_alone(TensorSource& source, const PublishOptions& options);
  UpdateReport run(runtime::SourceStream& stream, const PublishOptions& options);
  void attach_new();
  Coordinator::StreamEnded stream_out(runtime::SourceStream& stream, const PublishOptions& options,
                                      const Coordinator::OpenStream& open);
  Status check_source(runtime::SourceStream& stream);
  // Peers that left the road, and orders that came meanwhile.
  void between();
  void drop(const Coordinator::DropFromStream& order);
  void take_losses();
  std::optional<uint32_t> index_of(control::PeerId peer) const;

  const PublisherOptions options_;
  os::SystemClock clock_;
  // The publishing thread's: the road, who is on it, and who left it in the update in progress.
  runtime::SendEnd send_end_;
  std::map<uint32_t, control::PeerId> attached_;  // By the road's index.
  std::set<control::PeerId> dropped_;
  std::unique_ptr<PublisherCore> core_;
  std::atomic<bool> busy_{false};
};

Status PublisherImpl::listen() {
  CHANGEOVER_TRY(runtime::check_deadlines(options_.deadlines));
  CHANGEOVER_TRY_ASSIGN(send_end_, runtime::open_send_end(options_, clock_));
  CHANGEOVER_TRY_ASSIGN(const Incarnation incarnation, os::draw_incarnation());
  core_ = std::make_unique<PublisherCore>(options_, incarnation, send_end_.peers_max, clock_);
  return core_->listen();
}

Result<UpdateReport> PublisherImpl::publish(TensorSource& source, const PublishOptions& options) {
  if (busy_.exchange(true)) {
    return Status(Code::kRefused, "busy: another publish() is in progress");
  }
  auto report = publish_alone(source, options);
  busy_ = false;
  return report;
}

Result<UpdateReport> PublisherImpl::publish_alone(TensorSource& source,
                                                  const PublishOptions& options) {
  if (options.version.version < 0 || options.version.epoch < 0) {
    return Status(Code::kInvalidArgument, "a version and its epoch are 0 or more (rule T1)");
  }
  const Instant until = clock_.now() + options.ranks_timeout;
  CHANGEOVER_TRY(core_->wait_for_ranks(options.ranks_min, options.ranks_timeout));
  CHANGEOVER_TRY(runtime::wait_until_ready(options));
  CHANGEOVER_TRY_ASSIGN(const auto lease, runtime::SourceLease::take(source));
  CHANGEOVER_TRY_ASSIGN(auto plan, protocol::plan_stream(lease.specs(), options.bucket_bytes));
  runtime::SourceStream stream(lease, std::move(plan), clock_);
  for (;;) {
    attach_new();
    UpdateReport report = run(stream, options);
    // Left out, or not there: the update was not begun.
    const bool nobody =
        report.status.code() == Code::kUnavailable &&
        std::all_of(report.ranks.begin(), report.ranks.end(),
                    [](const RankReport& rank) { return rank.outcome == RankOutcome::kLeftOut; });
    if (!nobody || options.ranks_min == 0 || clock_.now() >= until) {
      return report;
    }
    // Those that were counted left before the begin: they, or others, are waited for once more.
    CHANGEOVER_TRY(core_->wait_for_ranks(options.ranks_min, until - clock_.now()));
  }
}

void PublisherImpl::attach_new() {
  std::erase_if(attached_, [&](const auto& at) { return !core_->is_connected(at.second); });
  uint32_t index = 0;
  for (auto& attachment : core_->take_attachments()) {
    while (attached_.count(index) != 0) {
      ++index;
    }
    const Status status =
        send_end_.attach(index, attachment.rank.to_text(), std::move(attachment.socket),
                         clock_.now() + options_.deadlines.connect);
    if (status.ok()) {
      attached_[index] = attachment.peer;
    } else {
      core_->let_go(attachment.peer, status.with_context("data connection"));
    }
  }
  (void)send_end_.road->take_failures();  // Of those that went since the last stream.
}

std::optional<uint32_t> PublisherImpl::index_of(control::PeerId peer) const {
  for (const auto& [index, attached] : attached_) {
    if (attached == peer) {
      return index;
    }
  }
  return std::nullopt;
}

UpdateReport PublisherImpl::run(runtime::SourceStream& stream, const PublishOptions& options) {
  protocol::UpdateRequest request;
  request.version = options.version;
  request.digests_on = options.digests;
  request.payload_bytes_total = stream.plan().payload_bytes_total;
  request.payload_bytes_max = stream.plan().payload_bytes_max;
  request.metadata_bytes_max = stream.plan().metadata_bytes_max;
  request.ranks_min = options.ranks_min;
  core_->feed(Coordinator::StartUpdate{request});
  for (;;) {
    attach_new();  // Ranks that came since, and were begun.
    auto order = core_->wait_for_order();
    if (std::holds_alternative<Coordinator::MakeDigest>(order)) {
      core_->feed(Coordinator::DigestReady{
          runtime::call("the source", [&] { return stream.digest_only(); })});
    } else if (auto* open = std::get_if<Coordinator::OpenStream>(&order)) {
      auto ended = stream_out(stream, options, *open);
      ended.check_follows = ended.status.ok() && stream.wants_check();
      core_->feed(ended);
      if (ended.check_follows) {
        core_->feed(Coordinator::SourceChecked{check_source(stream)});
      }
    } else if (const auto* left_out = std::get_if<Coordinator::DropFromStream>(&order)) {
      drop(
          *left_out);  // Of a stream that broke: no more comes, and its ranks need not wait for it.
      take_losses();
    } else if (auto* done = std::get_if<Coordinator::UpdateDone>(&order)) {
      // A rank that left the road comes back on a new connection; the old one is of no use.
      for (const control::PeerId peer : std::exchange(dropped_, {})) {
        core_->let_go(peer, Status(Code::kUnavailable, "left the road in mid-stream"));
      }
      return std::move(done->report);
    }
  }
}

Coordinator::StreamEnded PublisherImpl::stream_out(runtime::SourceStream& stream,
                                                   const PublishOptions& options,
                                                   const Coordinator::OpenStream& open) {
  std::vector<uint32_t> indices;
  for (const control::PeerId peer : open.ranks) {
    if (const auto index = index_of(peer)) {
      indices.push_back(*index);
    }
  }
  Status status = send_end_.road->open_stream(indices, open.stream_id);
  if (status.ok()) {
    runtime::SourceStream::Options how;
    how.version = options.version.version;
    how.digests = options.digests;
    how.stall = options_.deadlines.stall;
    how.on_progress = options.on_progress;
    how.between = [&] {
      between();
      return Status();
    };
    status = runtime::call("the source, or on_progress,",
                           [&] { return stream.send(*send_end_.road, how); });
  }
  between();
  return {status, stream.digest(), stream.payload_bytes(), stream.plan().buckets.size()};
}

// The ranks have their digest and vote meanwhile.
Status PublisherImpl::check_source(runtime::SourceStream& stream) {
  const auto pause = options_.deadlines.vote / 16;  // Four times as often as ranks are told.
  Instant next = clock_.now();
  return runtime::call("the source", [&] {
    return stream.check([&]() -> Status {
      if (const Instant now = clock_.now(); now >= next) {
        next = now + pause;
        core_->feed(Coordinator::SourceRead{});
        if (core_->is_done()) {
          return {Code::kAborted, "the update ended before its source was checked"};
        }
      }
      return {};
    });
  });
}

void PublisherImpl::between() {
  while (auto order = core_->take_order()) {
    if (const auto* left_out = std::get_if<Coordinator::DropFromStream>(&*order)) {
      drop(*left_out);
    }
  }
  take_losses();
}

void PublisherImpl::drop(const Coordinator::DropFromStream& order) {
  if (const auto index = index_of(order.connection)) {
    send_end_.road->drop(*index, order.why);
  }
}

void PublisherImpl::take_losses() {
  for (const auto& failure : send_end_.road->take_failures()) {
    const auto at = attached_.find(failure.peer);
    if (at != attached_.end() && dropped_.insert(at->second).second) {
      core_->feed(Coordinator::PeerLost{at->second, failure.status});
    }
  }
}

}  // namespace

Result<std::unique_ptr<Publisher>> Publisher::open(PublisherOptions options) {
  auto publisher = std::make_unique<PublisherImpl>(std::move(options));
  CHANGEOVER_TRY(publisher->listen());
  return std::unique_ptr<Publisher>(std::move(publisher));
}

}  // namespace changeover
