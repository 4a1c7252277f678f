// From END to a decision for each engine: the source's check, votes, whoever is lost or late.
#include <algorithm>
#include <utility>

#include "protocol/coordinator.h"

namespace changeover::protocol {

namespace {

std::string milliseconds_text(std::chrono::nanoseconds duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) +
         " ms";
}

}  // namespace

// --- the source is checked while the votes come in (rule U1)

void Coordinator::on(const SourceRead&, Instant now) {
  if (check_deadline_ == Instant::never()) {
    return;
  }
  check_deadline_ = now + options_.deadlines.stall;
  if (now - told_at_ < options_.deadlines.vote / 4) {
    return;
  }
  told_at_ = now;
  send_digest();
}

void Coordinator::on(const SourceChecked& event, Instant now) {
  if (check_deadline_ != Instant::never()) {
    end_check(event.status, now);
  }
}

void Coordinator::end_check(const Status& status, Instant now) {
  check_deadline_ = Instant::never();
  if (!status.ok()) {
    failure_ = status;
    decide_all(status);
    return;
  }
  send_digest();
  waiting_since_ = now;  // Of ranks that served on until now.
  deadline_ = now + options_.deadlines.vote;
}

void Coordinator::send_digest() {
  const bool checking = check_deadline_ != Instant::never();
  for (const auto& [name, engine] : update_) {
    for (const auto& [rank, member] : engine.members) {
      if (!engine.decision && takes_part(member) && member.connection != 0) {
        send(member.connection, SourceDigest{id_, stream_.digest, checking});
      }
    }
  }
}

// --- votes and decisions

void Coordinator::await_votes(Instant now) {
  if (now >= check_deadline_) {
    end_check({Code::kDeadline,
               "waited " + milliseconds_text(options_.deadlines.stall) +
                   " for the publisher's own check of its source, which read nothing meanwhile: "
                   "publish a source that does not change, or make it faster to read"},
              now);
  }
  if (check_deadline_ == Instant::never()) {
    judge_votes();
  }
  if (now >= deadline_) {
    const bool checking = check_deadline_ != Instant::never();
    let_go_silent(
        [&](const Member& member) {
          // Some serve on until the source is checked, and vote after that.
          return takes_part(member) && !member.vote &&
                 !(checking && receives_apart(member.hello.mode));
        },
        "its vote", now);
    if (!checking) {
      decide_all({Code::kDeadline, "the votes do not allow a commit"});  // However that came about.
    }
    deadline_ = Instant::never();  // Whoever is left waits for the check.
  }
  if (std::all_of(update_.begin(), update_.end(),
                  [](const auto& entry) { return entry.second.decision.has_value(); })) {
    check_deadline_ = Instant::never();
    step_ = Step::kFinishing;
    waiting_since_ = now;
    deadline_ = now + options_.deadlines.vote;
  }
}

void Coordinator::on_message(Peer& peer, const Vote& vote, Instant) {
  const RankName& rank = peer.hello.rank;
  if (const auto decision = find_decision(vote.id, rank.engine)) {
    send(peer.connection, *decision);
  }
  Member* member = find_member(peer);
  if (member == nullptr || vote.id != id_ || member->vote ||
      vote.incarnation != member->hello.incarnation) {
    return;
  }
  member->vote = vote;
  Engine& engine = update_[rank.engine];
  if (engine.decision) {
    return;
  }
  Status why = vote.error;
  if (vote.ready && (vote.version != request_.version || vote.mode != member->hello.mode)) {
    why = {Code::kCorrupt, "it voted for version " + std::to_string(vote.version.version) +
                               " in mode " + std::string(mode_name(vote.mode))};
  } else if (vote.ready && stream_.digest && vote.digest != stream_.digest) {
    why = {Code::kCorrupt, "it holds " +
                               (vote.digest ? "digest " + vote.digest->to_text() : "no digest") +
                               ", the source's is " + stream_.digest->to_text()};
  } else if (!vote.ready && why.ok()) {
    why = {Code::kAborted, "it gave no reason"};
  }
  if (!why.ok()) {
    decide(rank.engine, engine, false, why.with_context("rank " + rank.to_text() + " voted no"));
  }
}

// One yes of every rank that takes part, or no commit (rule V1).
void Coordinator::judge_votes() {
  for (auto& [name, engine] : update_) {
    const bool all_ready =
        std::all_of(engine.members.begin(), engine.members.end(), [](const auto& entry) {
          const Member& member = entry.second;
          return member.lost.ok() && member.begin &&
                 (member.begin->kind == BeginKind::kAlreadyThere ||
                  (takes_part(member) && member.vote && member.vote->ready));
        });
    if (all_ready) {
      decide(name, engine, true, {});
    }
  }
}

void Coordinator::decide(const std::string& name, Engine& engine, bool commit,
                         const Status& reason) {
  if (engine.decision) {
    return;  // Never changes.
  }
  engine.decision = Decision{id_, commit, reason};
  if (decisions_.empty() || decisions_.back().id != id_) {
    decisions_.push_back({id_, {}});
    if (decisions_.size() > kDecisionsMax) {
      decisions_.pop_front();
    }
  }
  decisions_.back().engines[name] = *engine.decision;
  for (auto& [rank, member] : engine.members) {
    if (member.streaming) {
      member.streaming = false;
      actions_.push_back(DropFromStream{member.connection, reason});
    }
    // A rank whose begin is not answered may have begun all the same.
    if (member.connection != 0 && (!member.begin || member.begin->kind == BeginKind::kReady)) {
      send(member.connection, *engine.decision);
    }
  }
}

void Coordinator::decide_all(const Status& reason) {
  for (auto& [name, engine] : update_) {
    decide(name, engine, false, reason);
  }
}

void Coordinator::lose(const std::string& name, Engine& engine, Member& member, const Status& why) {
  if (!member.lost.ok() || member.finished) {
    return;
  }
  member.lost = why;
  decide(name, engine, false, why.with_context("rank " + member.hello.rank.to_text()));
}

// They may be alive, with a data connection that is not (case N15): whoever is silent is told the
// decision and let go, and takes part again when it has come anew.
void Coordinator::let_go_silent(const std::function<bool(const Member&)>& is_silent,
                                const std::string& for_what, Instant now) {
  const Status why(Code::kDeadline,
                   "waited " + milliseconds_text(now - waiting_since_) + " for " + for_what);
  for (auto& [name, engine] : update_) {
    for (auto& [rank, member] : engine.members) {
      if (member.lost.ok() && is_silent(member)) {
        lose(name, engine, member, why);
        close(member.connection, why.with_context("rank " + member.hello.rank.to_text()), now);
      }
    }
  }
}

}  // namespace changeover::protocol
