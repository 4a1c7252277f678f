// Who is connected: hellos checked, connections lost, engines complete and whole, steps released.
#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "protocol/coordinator.h"

namespace changeover::protocol {

void Coordinator::on(const Received& event, Instant now) {
  Peer* peer = find_peer(event.connection);
  if (const Hello* hello = std::get_if<Hello>(&event.message)) {
    if (peer != nullptr) {
      on_second_hello(*peer, *hello, now);
    } else {
      on_hello(event.connection, *hello, now);
    }
    return;
  }
  if (peer == nullptr) {
    close(event.connection, {Code::kCorrupt, "a message before the hello"}, now);
    return;
  }
  std::visit([&](const auto& message) { on_message(*peer, message, now); }, event.message);
}

template <typename T>
void Coordinator::on_message(Peer& peer, const T&, Instant now) {
  close(peer.connection, {Code::kCorrupt, "a message that only publishers send"}, now);
}

void Coordinator::on_hello(ConnectionId connection, const Hello& hello, Instant now) {
  if (Status why = check_hello(hello); !why.ok()) {
    send(connection, HelloRefused{why, false});
    actions_.push_back(CloseConnection{connection, why});
    return;
  }
  const auto engine = engines_.find(hello.rank.engine);
  if (engine != engines_.end()) {
    const auto found = engine->second.find(hello.rank.rank);
    if (found != engine->second.end()) {
      const Peer& first = found->second;
      if (first.hello.incarnation != hello.incarnation) {
        const Status why(Code::kRefused,
                         "rank " + hello.rank.to_text() + " is claimed by process " +
                             std::to_string(first.hello.pid) + " on " +
                             base::quoted(first.hello.host) + ", which is connected: it stands");
        send(connection, HelloRefused{why, true});
        actions_.push_back(CloseConnection{connection, why});
        return;
      }
      // The same process on a new connection: the old one is dead and does not know it yet.
      close(first.connection, {Code::kUnavailable, "the rank connected anew"}, now);
    }
  }
  engines_[hello.rank.engine][hello.rank.rank] = Peer{connection, hello};
  names_[connection] = hello.rank;
  send(connection, Welcome{options_.incarnation});
  if (hello.prepared) {
    if (const auto decision = find_decision(*hello.prepared, hello.rank.engine)) {
      send(connection, *decision);
    }
  }
  release_if_whole(hello.rank.engine);
}

// Of a rank whose memory was changed outside any update: a reload (rule T9).
void Coordinator::on_second_hello(Peer& peer, const Hello& hello, Instant now) {
  if (hello.rank != peer.hello.rank || hello.incarnation != peer.hello.incarnation) {
    close(peer.connection, {Code::kCorrupt, "a second hello that is of another rank"}, now);
    return;
  }
  peer.hello.version = hello.version;
  peer.hello.digest = hello.digest;
  peer.hello.fenced = hello.fenced;
  peer.hello.gate_open = hello.gate_open;
  release_if_whole(hello.rank.engine);
}

Status Coordinator::check_hello(const Hello& hello) const {
  const std::string rank =
      "rank " + base::quoted(hello.rank.engine) + "/" + std::to_string(hello.rank.rank);
  if (hello.job != options_.job) {
    return {Code::kRefused, rank + " is of job " + base::quoted(hello.job) +
                                ", this publisher serves job " + base::quoted(options_.job)};
  }
  if (hello.rank.engine.empty() || hello.rank.engine.size() > kNameBytesMax ||
      hello.engine_size < 1 || hello.engine_size > kEngineSizeMax || hello.rank.rank < 0 ||
      hello.rank.rank >= hello.engine_size || hello.capabilities.size() > kCapabilitiesMax) {
    return {Code::kInvalidArgument, rank + " of " + std::to_string(hello.engine_size) +
                                        ": the engine's name has 1 to 256 bytes, ranks count " +
                                        "from 0 to its size - 1"};
  }
  const auto engine = engines_.find(hello.rank.engine);
  if (engine == engines_.end()) {
    return {};
  }
  for (const auto& [index, peer] : engine->second) {
    if (index == hello.rank.rank) {
      continue;
    }
    if (peer.hello.engine_size != hello.engine_size) {
      return {Code::kRefused, rank + " says its engine has " + std::to_string(hello.engine_size) +
                                  " ranks, rank " + std::to_string(index) + " says " +
                                  std::to_string(peer.hello.engine_size)};
    }
    if (peer.hello.mode != hello.mode) {
      return {Code::kRefused, rank + " is in mode " + std::string(mode_name(hello.mode)) +
                                  ", rank " + std::to_string(index) + " of its engine in " +
                                  std::string(mode_name(peer.hello.mode)) + " (rule V2)"};
    }
    if (hello.plan_generation < peer.hello.plan_generation) {
      return {Code::kRefused, rank + " has the load plan of generation " +
                                  std::to_string(hello.plan_generation) + ", rank " +
                                  std::to_string(index) + " of its engine that of generation " +
                                  std::to_string(peer.hello.plan_generation) +
                                  ": start it with the newer one (rule T15)"};
    }
  }
  return {};
}

void Coordinator::on(const Closed& event, Instant now) {
  forget(event.connection, event.why, now);
}

void Coordinator::close(ConnectionId connection, const Status& why, Instant now) {
  actions_.push_back(CloseConnection{connection, why});
  forget(connection, why, now);
}

void Coordinator::forget(ConnectionId connection, const Status& why, Instant) {
  const auto name = names_.find(connection);
  if (name == names_.end()) {
    return;
  }
  const RankName rank = name->second;
  names_.erase(name);
  const auto engine = engines_.find(rank.engine);
  engine->second.erase(rank.rank);
  if (engine->second.empty()) {
    engines_.erase(engine);
  }
  const auto part = update_.find(rank.engine);
  if (!busy() || part == update_.end()) {
    return;
  }
  const auto found = part->second.members.find(rank.rank);
  if (found != part->second.members.end() && found->second.connection == connection) {
    Member& member = found->second;
    member.connection = 0;
    if (member.streaming) {
      member.streaming = false;
      actions_.push_back(DropFromStream{connection, why});
    }
    lose(rank.engine, part->second, member,
         why.ok() ? Status(Code::kUnavailable, "its connection ended") : why);
  }
}

bool Coordinator::is_complete(const std::map<int32_t, Peer>& ranks) const {
  return !ranks.empty() &&
         ranks.size() == static_cast<size_t>(ranks.begin()->second.hello.engine_size) &&
         std::all_of(ranks.begin(), ranks.end(), [&](const auto& entry) {
           return entry.second.hello.plan_generation == newest_plan(ranks);
         });
}

// The layout that the engine moves to: ranks with an older plan have to be started anew (T15).
uint64_t Coordinator::newest_plan(const std::map<int32_t, Peer>& ranks) {
  uint64_t newest = 0;
  for (const auto& [rank, peer] : ranks) {
    newest = std::max(newest, peer.hello.plan_generation);
  }
  return newest;
}

// All its ranks are here and hold one version, of one content as far as that is known.
bool Coordinator::is_whole(const std::map<int32_t, Peer>& ranks) const {
  const Hello& first = ranks.begin()->second.hello;
  return is_complete(ranks) && first.version &&
         std::all_of(ranks.begin(), ranks.end(), [&](const auto& entry) {
           const Hello& hello = entry.second.hello;
           return hello.version == first.version && hello.digest == first.digest && !hello.fenced &&
                  !hello.prepared;
         });
}

void Coordinator::release_if_whole(const std::string& name) {
  const auto engine = engines_.find(name);
  if (engine == engines_.end() || !is_whole(engine->second)) {
    return;
  }
  const auto part = update_.find(name);
  if (busy() && part != update_.end() && !is_settled(part->second)) {
    return;  // What the ranks said last is about to change.
  }
  for (auto& [rank, peer] : engine->second) {
    if (!peer.hello.gate_open) {
      peer.hello.gate_open = true;
      send(peer.connection, Release{*peer.hello.version});
    }
  }
}

std::optional<Decision> Coordinator::find_decision(const UpdateId& id,
                                                   const std::string& engine) const {
  const auto record = std::find_if(decisions_.rbegin(), decisions_.rend(),
                                   [&](const DecisionRecord& r) { return r.id == id; });
  if (record == decisions_.rend()) {
    return std::nullopt;
  }
  const auto found = record->engines.find(engine);
  return found == record->engines.end() ? std::nullopt : std::optional(found->second);
}

uint32_t Coordinator::complete_ranks() const {
  size_t count = 0;
  for (const auto& [name, ranks] : engines_) {
    count += is_complete(ranks) ? ranks.size() : 0;
  }
  return static_cast<uint32_t>(count);
}

std::string Coordinator::missing_ranks(const std::string& engine) const {
  constexpr size_t kNamedMax = 16;
  std::string text;
  size_t count = 0;
  for (const auto& [name, ranks] : engines_) {
    if (!engine.empty() && name != engine) {
      continue;
    }
    const int32_t size = ranks.begin()->second.hello.engine_size;
    for (int32_t rank = 0; rank < size; ++rank) {
      const auto found = ranks.find(rank);
      const bool older =
          found != ranks.end() && found->second.hello.plan_generation < newest_plan(ranks);
      if ((found == ranks.end() || older) && count++ < kNamedMax) {
        text += (text.empty() ? "" : ", ") + RankName{name, rank}.to_text() +
                (older ? " with the newer load plan" : "");
      }
    }
  }
  return count > kNamedMax ? text + " and " + std::to_string(count - kNamedMax) + " more" : text;
}

std::vector<PeerStatus> Coordinator::peers() const {
  std::vector<PeerStatus> all;
  for (const auto& [name, ranks] : engines_) {
    const bool pending = !is_whole(ranks);
    for (const auto& [rank, peer] : ranks) {
      const Hello& hello = peer.hello;
      all.push_back({hello.rank, hello.engine_size, hello.incarnation, hello.version, hello.fenced,
                     pending, hello.host});
    }
  }
  return all;
}

const RankName* Coordinator::rank_of(ConnectionId connection) const {
  const auto name = names_.find(connection);
  return name == names_.end() ? nullptr : &name->second;
}

void Coordinator::send(ConnectionId connection, Message message) {
  actions_.push_back(Send{connection, std::move(message)});
}

Coordinator::Peer* Coordinator::find_peer(ConnectionId connection) {
  const auto name = names_.find(connection);
  return name == names_.end() ? nullptr : &engines_[name->second.engine][name->second.rank];
}

Coordinator::Member* Coordinator::find_member(const Peer& peer) {
  const auto engine = update_.find(peer.hello.rank.engine);
  if (!busy() || engine == update_.end()) {
    return nullptr;
  }
  const auto found = engine->second.members.find(peer.hello.rank.rank);
  return found != engine->second.members.end() && found->second.connection == peer.connection
             ? &found->second
             : nullptr;
}

}  // namespace changeover::protocol
