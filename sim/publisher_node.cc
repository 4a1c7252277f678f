#include "sim/publisher_node.h"

#include <algorithm>
#include <utility>

#include "protocol/stream_testing.h"

namespace changeover::sim {

using protocol::ConnectionId;
using protocol::Coordinator;

void PublisherNode::start() {
  if (!alive()) {
    world_.note("publisher starts");
    process_ = std::make_unique<Process>(
        protocol::CoordinatorOptions{"sim", world_.incarnation(), Deadlines()});
  }
}

void PublisherNode::crash() {
  if (!alive()) {
    return;
  }
  world_.note("publisher crashes");
  ++life_;
  last_ok_ = false;
  for (auto& [id, link] : process_->links) {
    link->detach(End::kPublisher);
    link->cut({Code::kUnavailable, "the publisher's process died"});
  }
  process_.reset();
}

LinkPtr PublisherNode::accept() {
  if (!alive()) {
    return nullptr;
  }
  auto link = std::make_shared<Link>(world_, ++links_);
  const ConnectionId id = link->id();
  process_->links[id] = link;
  Link::Callbacks callbacks;
  callbacks.on_message = [this, id](protocol::Message message) {
    guarded([this, id, message = std::move(message)] { on_message(id, message); })();
  };
  callbacks.on_closed = [this, id](Status why) {
    guarded([this, id, why] {
      process_->links.erase(id);
      handle(Coordinator::Closed{id, why});
    })();
  };
  link->attach(End::kPublisher, std::move(callbacks));
  return link;
}

void PublisherNode::on_message(ConnectionId connection, const protocol::Message& message) {
  if (const auto* hello = std::get_if<protocol::Hello>(&message)) {
    process_->hellos[connection] = *hello;
    greeting_ = true;
    handle(Coordinator::Received{connection, message});
    greeting_ = false;
    return;
  }
  handle(Coordinator::Received{connection, message});
  const auto* vote = std::get_if<protocol::Vote>(&message);
  if (world_.bug == Bug::kOneYesIsEnough && vote != nullptr && vote->ready) {
    const auto hellos = process_->hellos;
    for (const auto& [other, hello] : hellos) {
      protocol::Vote forged = *vote;
      forged.incarnation = hello.incarnation;
      if (hello.rank.engine == hellos.at(connection).rank.engine) {
        handle(Coordinator::Received{other, forged});
      }
    }
  }
}

int64_t PublisherNode::next_version() {
  if (trained_ > 2 && world_.random.chance(0.05)) {
    return trained_ - 2;  // an old one, by mistake (case B38)
  }
  if (last_ok_ || world_.random.chance(0.5)) {
    ++trained_;
  }
  return trained_;
}

void PublisherNode::publish(int64_t version) {
  trained_ = std::max(trained_, version);
  publishing_ = version;
  last_report_.reset();
  protocol::UpdateRequest request;
  request.version = {0, version};
  request.payload_bytes_max = request.metadata_bytes_max = 1024;
  if (world_.random.chance(0.3)) {
    request.digest = world_.model.digest(version);
  }
  world_.note("publish version " + std::to_string(version));
  handle(Coordinator::StartUpdate{request});
  on_start_();
}

void PublisherNode::on_data_lost(uint64_t link, const Status& why) {
  if (alive()) {
    world_.scheduler.after(world_.delay(milliseconds(0), milliseconds(50)),
                           guarded([this, link, why] {
                             handle(Coordinator::PeerLost{link, why});
                           }));
  }
}

std::function<void()> PublisherNode::guarded(std::function<void()> what) {
  return [this, life = life_, what = std::move(what)] {
    if (life == life_ && alive()) {
      what();
    }
  };
}

void PublisherNode::handle(const Coordinator::Event& event) {
  process_->coordinator.handle(event, world_.scheduler.now());
  pump();
}

void PublisherNode::pump() {
  while (auto action = process_->coordinator.poll()) {
    act(*action);
  }
  arm();
}

void PublisherNode::act(const Coordinator::Action& action) {
  Process& p = *process_;
  if (const auto* message = std::get_if<Coordinator::Send>(&action)) {
    send(*message);
  } else if (const auto* close = std::get_if<Coordinator::CloseConnection>(&action)) {
    const auto found = p.links.find(close->connection);
    if (found != p.links.end()) {
      found->second->close(End::kPublisher, close->why);
      p.links.erase(found);
    }
  } else if (std::get_if<Coordinator::MakeDigest>(&action)) {
    world_.scheduler.after(world_.delay(milliseconds(1), milliseconds(50)), guarded([this] {
                             handle(Coordinator::DigestReady{world_.model.digest(publishing_)});
                           }));
  } else if (const auto* open = std::get_if<Coordinator::OpenStream>(&action)) {
    const auto bucket = static_cast<uint64_t>(world_.random.between(8, 80));
    p.streaming = Streaming{
        open->stream_id,
        open->ranks,
        protocol::testing::encode_stream(world_.model.tensors(publishing_), bucket, publishing_),
        0,
        publishing_,
        life_};
    world_.scheduler.after(world_.delay(milliseconds(0), milliseconds(5)),
                           guarded([this] { stream_on(); }));
  } else if (const auto* drop = std::get_if<Coordinator::DropFromStream>(&action)) {
    if (p.streaming) {
      std::erase(p.streaming->targets, drop->connection);
      const auto found = p.links.find(drop->connection);
      if (found != p.links.end()) {
        found->second->send_data(p.streaming->stream, {});
      }
    }
  } else if (const auto* done = std::get_if<Coordinator::UpdateDone>(&action)) {
    world_.note("update done: " + done->report.status.to_string());
    last_report_ = done->report;
    last_ok_ = done->report.status.ok();
  }
}

void PublisherNode::send(const Coordinator::Send& send) {
  Process& p = *process_;
  const auto found = p.links.find(send.connection);
  if (found == p.links.end()) {
    return;
  }
  const LinkPtr link = found->second;
  if (const auto* decision = std::get_if<protocol::Decision>(&send.message)) {
    if (world_.bug == Bug::kDecisionIsNeverRepeated && greeting_) {
      return;
    }
    world_.checker.on_decision(p.hellos[send.connection].rank, *decision);
    link->send(End::kPublisher, send.message);
    if (world_.bug == Bug::kReleaseWithDecision && decision->commit) {
      link->send(End::kPublisher, protocol::Release{{0, publishing_}});
    }
    return;
  }
  link->send(End::kPublisher, send.message);
}

void PublisherNode::stream_on() {
  Process& p = *process_;
  if (!p.streaming) {
    return;
  }
  Streaming& s = *p.streaming;
  const auto bytes =
      std::min<size_t>(static_cast<size_t>(world_.random.between(16, 160)), s.bytes.size() - s.at);
  for (const ConnectionId target : s.targets) {
    std::vector<std::byte> chunk(s.bytes.begin() + static_cast<long>(s.at),
                                 s.bytes.begin() + static_cast<long>(s.at + bytes));
    if (const auto damage = damage_.find(target); damage != damage_.end()) {
      const bool lose = damage->second;
      damage_.erase(damage);
      if (lose) {
        continue;
      }
      chunk[world_.random.below(chunk.size())] ^= std::byte{4};
    }
    if (const auto link = p.links.find(target); link != p.links.end()) {
      link->second->send_data(s.stream, std::move(chunk));
    }
  }
  s.at += bytes;
  if (s.at < s.bytes.size() && !s.targets.empty()) {
    world_.scheduler.after(world_.delay(milliseconds(0), milliseconds(8)),
                           guarded([this] { stream_on(); }));
    return;
  }
  Coordinator::StreamEnded ended;
  if (s.targets.empty()) {
    ended.status = {Code::kUnavailable, "no rank is left in the stream"};
  }
  ended.digest = world_.model.digest(s.version);
  ended.payload_bytes = s.bytes.size();
  ended.check_follows = ended.status.ok() && world_.random.chance(0.3);
  p.streaming.reset();
  handle(ended);
  if (ended.check_follows) {
    check_on(process_->coordinator.update(), static_cast<int>(world_.random.below(6)));
  }
}

// Reads the source again, `reads` pieces and longer than a vote may take (rule U1).
void PublisherNode::check_on(const UpdateId& update, int reads) {
  world_.scheduler.after(
      world_.delay(milliseconds(0), seconds(3)), guarded([this, update, reads] {
        if (process_->coordinator.update() != update) {
          return;  // It was over before its check was.
        }
        if (reads > 0) {
          handle(Coordinator::SourceRead{});
          check_on(update, reads - 1);
        } else if (damage_.empty() || world_.random.chance(0.8)) {
          handle(Coordinator::SourceChecked{});
        } else {
          handle(Coordinator::SourceChecked{{Code::kAborted, "the source changed"}});
        }
      }));
}

void PublisherNode::arm() {
  const Instant next = process_->coordinator.deadline();
  if (world_.bug == Bug::kNoDeadlines || next == Instant::never() || next == process_->armed) {
    return;
  }
  process_->armed = next;
  world_.scheduler.at(next, guarded([this] {
                        process_->armed = Instant::never();
                        handle(Coordinator::Tick{});
                      }));
}

}  // namespace changeover::sim
