// One update: begin, stream, release, report. Its votes and decisions are in coordinator_votes.cc,
// who is connected in coordinator_peers.cc.
#include "protocol/coordinator.h"

#include <algorithm>
#include <utility>

namespace changeover::protocol {

namespace {

std::string version_text(VersionStamp stamp) {
  return std::to_string(stamp.version) +
         (stamp.epoch == 0 ? "" : " of epoch " + std::to_string(stamp.epoch));
}

// As it was when the update began.
RankReport report_of(const Hello& hello) {
  RankReport report;
  report.rank = hello.rank;
  report.incarnation = hello.incarnation;
  report.mode = hello.mode;
  report.way = "stream";
  report.version_before = report.version = hello.version;
  report.digest = hello.digest;
  report.fenced = hello.fenced;
  return report;
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options) : options_(std::move(options)) {
  id_.coordinator = options_.incarnation;
}

void Coordinator::handle(const Event& event, Instant now) {
  std::visit([&](const auto& e) { on(e, now); }, event);
  advance(now);
}

std::optional<Coordinator::Action> Coordinator::poll() {
  if (actions_.empty()) {
    return std::nullopt;
  }
  Action action = std::move(actions_.front());
  actions_.pop_front();
  return action;
}

Instant Coordinator::deadline() const {
  return std::min(deadline_, check_deadline_);
}

// --- begin

void Coordinator::on(const StartUpdate& event, Instant now) {
  if (busy()) {
    return;
  }
  request_ = event.request;
  started_at_ = now;
  if (newest_ && request_.version < *newest_) {
    ++id_.counter;
    update_.clear();
    left_out_.clear();
    stream_ = {};
    finish_update({Code::kRefused, "version " + version_text(request_.version) +
                                       " was passed over: this publisher has offered version " +
                                       version_text(*newest_) + " (rule U5)"},
                  now);
    return;
  }
  newest_ = request_.version;
  begin_update(now);
}

void Coordinator::begin_update(Instant now) {
  ++id_.counter;
  update_.clear();
  left_out_.clear();
  stream_ = {};
  failure_ = {};
  for (const auto& [name, ranks] : engines_) {
    const bool complete = is_complete(ranks);
    for (const auto& [rank, peer] : ranks) {
      if (complete) {
        Member& member = update_[name].members[rank];
        member.connection = peer.connection;
        member.hello = peer.hello;
      } else {
        // Pending until its other ranks are here (rule M5): no part of it can commit.
        left_out_.push_back(left_out_report(peer.hello));
      }
    }
  }
  // Who was waited for may have gone since.
  const uint32_t wanted = std::max(request_.ranks_min, 1u);
  if (const uint32_t here = complete_ranks(); here < wanted) {
    const std::string missing = missing_ranks();
    update_.clear();
    finish_update(
        {Code::kUnavailable, std::to_string(here) + " rank(s) of whole engines are here, " +
                                 std::to_string(wanted) + " are asked for" +
                                 (missing.empty() ? "" : "; missing: " + missing)},
        now);
    return;
  }
  for (const auto& [name, engine] : update_) {
    for (const auto& [rank, member] : engine.members) {
      send(member.connection, Begin{id_, request_.version, request_.digest, request_.digests_on,
                                    request_.payload_bytes_max, request_.metadata_bytes_max,
                                    id_.counter, request_.payload_bytes_total});
    }
  }
  step_ = Step::kBeginning;
  waiting_since_ = now;
  deadline_ = now + options_.deadlines.begin;
}

void Coordinator::on_message(Peer& peer, const BeginReply& reply, Instant) {
  Member* member = find_member(peer);
  if (member != nullptr && reply.id == id_ && !member->begin) {
    member->begin = reply;
  }
  if (const auto decision = find_decision(reply.id, peer.hello.rank.engine)) {
    send(peer.connection, *decision);  // It came late: the rank must not wait for a stream.
  }
}

void Coordinator::judge_begins(Instant now) {
  bool digest_wanted = false;
  for (auto& [name, engine] : update_) {
    for (auto& [rank, member] : engine.members) {
      if (!member.lost.ok() || !member.begin || engine.decision) {
        continue;
      }
      if (member.begin->kind == BeginKind::kNeedDigest && request_.digest) {
        member.begin->kind = BeginKind::kRefused;
        member.begin->why = {Code::kCorrupt, "it asked for the digest that the begin carried"};
      }
      digest_wanted = digest_wanted || member.begin->kind == BeginKind::kNeedDigest;
      if (member.begin->kind == BeginKind::kRefused) {
        // Nobody has written yet: the whole engine stays as it is (rules T2, V3).
        decide(name, engine, false,
               member.begin->why.with_context("rank " + member.hello.rank.to_text() +
                                              " refused the begin"));
      }
    }
  }
  if (digest_wanted) {
    decide_all({Code::kAborted,
                "a rank holds this version and asked for its digest (rule U2): "
                "the update begins again with one"});
    step_ = Step::kDigesting;
    deadline_ = Instant::never();
    actions_.push_back(MakeDigest{});
    return;
  }
  start_stream(now);
}

void Coordinator::on(const DigestReady& event, Instant now) {
  if (step_ != Step::kDigesting) {
    return;
  }
  if (!event.digest.ok()) {
    finish_update(event.digest.status().with_context("the source could not be digested"), now);
    return;
  }
  request_.digest = *event.digest;
  begin_update(now);
}

// --- stream

void Coordinator::start_stream(Instant now) {
  OpenStream open{id_, id_.counter, {}};
  for (auto& [name, engine] : update_) {
    for (auto& [rank, member] : engine.members) {
      member.streaming = !engine.decision && takes_part(member);
      if (member.streaming) {
        open.ranks.push_back(member.connection);
      }
    }
  }
  if (open.ranks.empty()) {
    step_ = Step::kFinishing;
    waiting_since_ = now;
    deadline_ = now + options_.deadlines.vote;
    return;
  }
  step_ = Step::kStreaming;
  deadline_ = Instant::never();  // The road's own limits hold until StreamEnded.
  actions_.push_back(std::move(open));
}

void Coordinator::on(const PeerLost& event, Instant) {
  for (auto& [name, engine] : update_) {
    for (auto& [rank, member] : engine.members) {
      if (member.connection == event.connection && member.streaming && !engine.decision) {
        member.streaming = false;
        decide(name, engine, false,
               event.why.with_context("rank " + member.hello.rank.to_text() + " left the stream"));
      }
    }
  }
}

void Coordinator::on(const StreamEnded& event, Instant now) {
  if (step_ != Step::kStreaming) {
    return;
  }
  stream_ = event;
  if (!event.status.ok()) {
    failure_ = event.status;
    decide_all(event.status.with_context("the stream broke"));
  }
  for (auto& [name, engine] : update_) {
    for (auto& [rank, member] : engine.members) {
      member.streaming = false;
    }
  }
  step_ = Step::kVoting;
  waiting_since_ = told_at_ = now;
  deadline_ = now + options_.deadlines.vote;
  if (event.status.ok() && event.check_follows) {
    check_deadline_ = now + options_.deadlines.stall;
  }
  send_digest();
}

// --- the end

void Coordinator::on_message(Peer& peer, const Finished& finished, Instant now) {
  if (finished.incarnation != peer.hello.incarnation) {
    return;
  }
  const auto part = update_.find(peer.hello.rank.engine);
  if (busy() && finished.id == id_ && part != update_.end()) {
    if (!part->second.decision) {
      close(peer.connection, {Code::kCorrupt, "it finished an update that is not decided"}, now);
      return;
    }
    // Found by its name: it may have been away and come back on another connection.
    const auto found = part->second.members.find(peer.hello.rank.rank);
    if (found != part->second.members.end() && takes_part(found->second) &&
        found->second.hello.incarnation == finished.incarnation && !found->second.finished) {
      found->second.finished = finished;
      found->second.lost = {};
    }
  }
  const RankReport& report = finished.report;
  const bool held_it = peer.hello.version == report.version && !peer.hello.fenced;
  peer.hello.version = report.version;
  peer.hello.digest = report.digest;
  peer.hello.fenced = report.fenced;
  peer.hello.prepared.reset();
  peer.hello.gate_open = peer.hello.gate_open && held_it;
  release_if_whole(peer.hello.rank.engine);
}

bool Coordinator::is_settled(const Engine& engine) const {
  return std::all_of(engine.members.begin(), engine.members.end(), [&](const auto& entry) {
    const Member& member = entry.second;
    if (!member.lost.ok() || member.finished) {
      return true;
    }
    return member.begin && member.begin->kind != BeginKind::kReady;
  });
}

void Coordinator::advance(Instant now) {
  const auto late = [&] { return now >= deadline_; };
  if (step_ == Step::kBeginning) {
    if (late()) {
      let_go_silent([](const Member& member) { return !member.begin; }, "its answer to the begin",
                    now);
    }
    const bool all = std::all_of(update_.begin(), update_.end(), [](const auto& entry) {
      return std::all_of(entry.second.members.begin(), entry.second.members.end(),
                         [](const auto& m) { return m.second.begin || !m.second.lost.ok(); });
    });
    if (all) {
      judge_begins(now);
    }
  }
  if (step_ == Step::kVoting) {
    await_votes(now);
  }
  if (step_ == Step::kFinishing) {
    if (late()) {
      let_go_silent([](const Member& member) { return takes_part(member) && !member.finished; },
                    "its word that the decision was carried out", now);
    }
    if (late() || std::all_of(update_.begin(), update_.end(),
                              [&](const auto& entry) { return is_settled(entry.second); })) {
      finish_update(failure_, now);
    }
  }
}

void Coordinator::on(const Tick&, Instant) {}  // handle() looks at the time after every event.

void Coordinator::finish_update(const Status& failure, Instant now) {
  step_ = Step::kIdle;
  deadline_ = Instant::never();
  UpdateReport report;
  report.id = id_;
  report.version = request_.version;
  report.digest = stream_.digest ? stream_.digest : request_.digest;
  report.digests_on = request_.digests_on;
  report.seconds = static_cast<double>((now - started_at_).count()) * 1e-9;
  report.payload_bytes = stream_.payload_bytes;
  report.buckets = stream_.buckets;
  report.status = failure;
  for (const auto& [name, engine] : update_) {
    for (const auto& [rank, member] : engine.members) {
      report.ranks.push_back(member_report(member));
      const RankReport& last = report.ranks.back();
      if (report.status.ok() && last.outcome != RankOutcome::kCommitted &&
          last.outcome != RankOutcome::kAlreadyThere) {
        report.status = Status(Code::kAborted, last.error.to_string())
                            .with_context("rank " + last.rank.to_text());
      }
    }
    release_if_whole(name);
  }
  report.ranks.insert(report.ranks.end(), left_out_.begin(), left_out_.end());
  std::sort(report.ranks.begin(), report.ranks.end(),
            [](const RankReport& a, const RankReport& b) { return a.rank < b.rank; });
  actions_.push_back(UpdateDone{std::move(report)});
}

RankReport Coordinator::member_report(const Member& member) const {
  if (member.finished) {
    return member.finished->report;
  }
  RankReport report = report_of(member.hello);
  if (member.begin && member.begin->kind == BeginKind::kAlreadyThere) {
    report.outcome = RankOutcome::kAlreadyThere;
  } else if (!member.lost.ok() || !member.begin) {
    report.outcome = RankOutcome::kLost;
    report.error = member.lost;
    report.version.reset();
    report.digest.reset();
  } else {
    const bool refused = member.begin->kind == BeginKind::kRefused;
    report.outcome = refused               ? RankOutcome::kRefused
                     : member.hello.fenced ? RankOutcome::kFenced
                                           : RankOutcome::kRestored;
    report.error = member.begin->why;
  }
  return report;
}

RankReport Coordinator::left_out_report(const Hello& hello) const {
  RankReport report = report_of(hello);
  report.outcome = RankOutcome::kLeftOut;
  report.error = {Code::kUnavailable,
                  "its engine takes no part; missing: " + missing_ranks(hello.rank.engine)};
  return report;
}

}  // namespace changeover::protocol
