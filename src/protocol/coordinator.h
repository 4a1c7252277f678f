// The publisher's side of the control channel: who is there, and one update at a time from begin to
// release, per engine all or none (rules T1, U2, V1-V6, M5's "pending until whole"). Sans I/O.
//
//   StartUpdate -> [MakeDigest -> DigestReady] -> OpenStream -> StreamEnded -> UpdateDone
//
// After every event, poll until there is no action. All waits end by deadline().
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <changeover/publisher.h>
#include <changeover/report.h>
#include <changeover/subscriber.h>
#include <changeover/types.h>

#include "base/instant.h"
#include "protocol/messages.h"

namespace changeover::protocol {

// The driver's number for a control connection; never reused within a process.
using ConnectionId = uint64_t;

struct CoordinatorOptions {
  std::string job = "default";
  Incarnation incarnation;
  Deadlines deadlines;
};

struct UpdateRequest {
  VersionStamp version;
  std::optional<Digest> digest;  // where it is already known
  bool digests_on = true;
  uint64_t payload_bytes_total = 0;
  uint64_t payload_bytes_max = 0;   // largest frame
  uint64_t metadata_bytes_max = 0;  // largest metadata
  uint32_t ranks_min = 0;  // of whole engines, when it begins; fewer is a refusal that names them
};

class Coordinator {
 public:
  // --- events
  struct Received {
    ConnectionId connection = 0;
    Message message;  // the first one of a connection must be a Hello
  };
  struct Closed {
    ConnectionId connection = 0;
    Status why;
  };
  // REQUIRES: !busy().
  struct StartUpdate {
    UpdateRequest request;
  };
  // The answer to MakeDigest.
  struct DigestReady {
    Result<Digest> digest;
  };
  // The road lost a peer of the stream (each once).
  struct PeerLost {
    ConnectionId connection = 0;
    Status why;
  };
  // The answer to OpenStream: END went out (`status` ok), or the stream broke for all.
  struct StreamEnded {
    Status status;
    std::optional<Digest> digest;  // of the source as it was sent; none where digests are off
    uint64_t payload_bytes = 0;
    uint64_t buckets = 0;
    // The source may have changed meanwhile: it is checked now, and no engine commits before
    // SourceChecked says that it has not. SourceRead comes meanwhile, as bytes are read.
    bool check_follows = false;
  };
  struct SourceRead {};
  struct SourceChecked {
    Status status;
  };
  struct Tick {};
  using Event = std::variant<Received, Closed, StartUpdate, DigestReady, PeerLost, StreamEnded,
                             SourceRead, SourceChecked, Tick>;

  // --- actions
  struct Send {
    ConnectionId connection = 0;
    Message message;
  };
  struct CloseConnection {
    ConnectionId connection = 0;
    Status why;
  };
  // Digest the source now, before anything is sent: a rank asked (rule U2).
  struct MakeDigest {};
  // Send the version to these ranks. Their BeginReply has arrived: they listen.
  struct OpenStream {
    UpdateId id;
    uint64_t stream_id = 0;
    std::vector<ConnectionId> ranks;
  };
  // Leave this rank out of the stream in progress. StreamEnded still comes.
  struct DropFromStream {
    ConnectionId connection = 0;
    Status why;
  };
  struct UpdateDone {
    UpdateReport report;  // `seconds` is the machine's; the road's name is each rank's own word
  };
  using Action =
      std::variant<Send, CloseConnection, MakeDigest, OpenStream, DropFromStream, UpdateDone>;

  explicit Coordinator(CoordinatorOptions options);

  void handle(const Event& event, Instant now);
  std::optional<Action> poll();
  Instant deadline() const;

  bool busy() const { return step_ != Step::kIdle; }
  // Connected ranks of engines all of whose ranks are connected.
  uint32_t complete_ranks() const;
  // "engine-a/2, engine-b/0": named by an engine's other ranks, but not connected.
  std::string missing_ranks(const std::string& engine = {}) const;  // empty = of all
  std::vector<PeerStatus> peers() const;                            // sorted by engine, then rank
  // Null before its hello was accepted.
  const RankName* rank_of(ConnectionId connection) const;
  const UpdateId& update() const { return id_; }

 private:
  enum class Step : uint8_t { kIdle, kBeginning, kDigesting, kStreaming, kVoting, kFinishing };
  // A rank that is connected now.
  struct Peer {
    ConnectionId connection = 0;
    Hello hello;  // kept up to date with what the rank says later
  };
  // What became of one rank in the update in progress.
  struct Member {
    ConnectionId connection = 0;
    Hello hello;  // as it was at begin
    std::optional<BeginReply> begin;
    std::optional<Vote> vote;
    std::optional<Finished> finished;
    Status lost;  // not ok: no more words are expected of it
    bool streaming = false;
  };
  struct Engine {
    std::map<int32_t, Member> members;
    std::optional<Decision> decision;
  };
  struct DecisionRecord {
    UpdateId id;
    std::map<std::string, Decision> engines;
  };
  // Decisions that are given again to ranks that come back; the oldest is forgotten first.
  static constexpr size_t kDecisionsMax = 1024;

  void on(const Received& event, Instant now);
  void on(const Closed& event, Instant now);
  void on(const StartUpdate& event, Instant now);
  void on(const DigestReady& event, Instant now);
  void on(const PeerLost& event, Instant now);
  void on(const StreamEnded& event, Instant now);
  void on(const SourceRead& event, Instant now);
  void on(const SourceChecked& event, Instant now);
  void on(const Tick& event, Instant now);
  void on_hello(ConnectionId connection, const Hello& hello, Instant now);
  void on_message(Peer& peer, const BeginReply& reply, Instant now);
  void on_message(Peer& peer, const Vote& vote, Instant now);
  void on_message(Peer& peer, const Finished& finished, Instant now);
  template <typename T>
  void on_message(Peer& peer, const T& unexpected, Instant now);

  void on_second_hello(Peer& peer, const Hello& hello, Instant now);
  Status check_hello(const Hello& hello) const;
  void close(ConnectionId connection, const Status& why, Instant now);
  void forget(ConnectionId connection, const Status& why, Instant now);

  void begin_update(Instant now);
  void advance(Instant now);  // moves on where nothing more is waited for
  void judge_begins(Instant now);
  void start_stream(Instant now);
  void await_votes(Instant now);
  void end_check(const Status& status, Instant now);
  void send_digest();
  void judge_votes();
  void let_go_silent(const std::function<bool(const Member&)>& is_silent,
                     const std::string& for_what, Instant now);
  void lose(const std::string& name, Engine& engine, Member& member, const Status& why);
  void decide(const std::string& name, Engine& engine, bool commit, const Status& reason);
  void decide_all(const Status& reason);
  void finish_update(const Status& failure, Instant now);
  RankReport member_report(const Member& member) const;
  // A rank that takes no part, because its engine lacks another.
  RankReport left_out_report(const Hello& hello) const;

  // Answered "ready" to the begin: is sent the stream, votes, finishes.
  static bool takes_part(const Member& member) {
    return member.begin && member.begin->kind == BeginKind::kReady;
  }
  bool is_settled(const Engine& engine) const;
  bool is_complete(const std::map<int32_t, Peer>& ranks) const;
  static uint64_t newest_plan(const std::map<int32_t, Peer>& ranks);
  bool is_whole(const std::map<int32_t, Peer>& ranks) const;
  void release_if_whole(const std::string& engine);
  std::optional<Decision> find_decision(const UpdateId& id, const std::string& engine) const;
  void send(ConnectionId connection, Message message);
  Peer* find_peer(ConnectionId connection);
  Member* find_member(const Peer& peer);

  CoordinatorOptions options_;
  std::deque<Action> actions_;
  std::map<std::string, std::map<int32_t, Peer>> engines_;
  std::map<ConnectionId, RankName> names_;
  std::deque<DecisionRecord> decisions_;
  Step step_ = Step::kIdle;
  UpdateId id_;
  UpdateRequest request_;
  std::optional<VersionStamp> newest_;  // ever offered by this publisher (rule U5)
  std::map<std::string, Engine> update_;
  std::vector<RankReport> left_out_;  // of the update: connected ranks of pending engines
  StreamEnded stream_;
  // While the publisher reads its source again: when that stands still for too long, and when the
  // ranks that wait were last told of it.
  Instant check_deadline_ = Instant::never();
  Instant told_at_;
  Status failure_;  // of the stream as a whole
  Instant started_at_;
  Instant waiting_since_;
  Instant deadline_ = Instant::never();
};

}  // namespace changeover::protocol
