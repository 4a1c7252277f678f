// What a publisher and a rank say to each other over the control channel, as plain values. The
// channel turns them into bytes and back; the machines never see an encoding.
//
// One connection carries messages in order. Every message of an update carries its id, and a
// repeated message of one id gets the first answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <changeover/report.h>
#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover::protocol {

// Ceilings of what a peer may say (rule S2).
inline constexpr size_t kNameBytesMax = 256;    // job, engine, host, road, way, policy
inline constexpr size_t kTextBytesMax = 4096;   // messages of a Status, results
inline constexpr size_t kCapabilitiesMax = 64;  // entries, each at most kNameBytesMax
inline constexpr int32_t kEngineSizeMax = 65536;

// rank -> coordinator, first message of a connection (after the channel's token handshake).
struct Hello {
  std::string job;
  RankName rank;
  int32_t engine_size = 1;
  Incarnation incarnation;
  Mode mode = Mode::kJournal;
  std::optional<VersionStamp> version;  // committed and whole; none = no whole version
  std::optional<Digest> digest;         // of that version, where known
  bool fenced = false;
  bool gate_open = false;            // steps may run (rule V6)
  std::optional<UpdateId> prepared;  // voted yes, decision not known here (rule V5)
  Digest plan_digest;
  uint64_t plan_generation = 0;           // rule T15
  std::vector<std::string> capabilities;  // what the rank can really do now; at most 64
  uint64_t payload_bytes_max = 0;         // larger frames are refused at begin
  uint64_t metadata_bytes_max = 0;
  std::string host;
  int64_t pid = 0;
};

// coordinator -> rank: the hello stands.
struct Welcome {
  Incarnation coordinator;
};

// coordinator -> rank: it does not. `retry`: a later hello may succeed (an earlier process's
// connection still counts); otherwise dialling again is of no use until something is changed.
struct HelloRefused {
  Status why;
  bool retry = false;
};

struct Begin {
  UpdateId id;
  VersionStamp version;
  std::optional<Digest> digest;      // where it is already known (rule U2)
  bool digests_on = true;            // a SourceDigest with a value will follow END
  uint64_t payload_bytes_max = 0;    // largest frame of this stream
  uint64_t metadata_bytes_max = 0;   // largest metadata of this stream
  uint64_t stream_id = 0;            // which stream of the data road
  uint64_t payload_bytes_total = 0;  // of the whole stream, for progress
};

enum class BeginKind : uint8_t {
  kReady,         // the rank listens on the stream
  kRefused,       // nothing changed here; `why` says what to do
  kAlreadyThere,  // holds this version with this digest: takes no part, needs nothing
  kNeedDigest,    // holds this version and cannot tell without a digest: begin again with one
};

struct BeginReply {
  UpdateId id;
  Incarnation incarnation;
  BeginKind kind = BeginKind::kRefused;
  Status why;  // not ok only for kRefused
};

// coordinator -> rank, after END: the source's digest; none where digests are off. Where the source
// may have changed while it was read it comes again, as long as the publisher checks that, and once
// after: whoever has voted waits on for the decision, and who serves on does so until then.
struct SourceDigest {
  UpdateId id;
  std::optional<Digest> digest;
  bool checking = false;  // it comes again
};

// rank -> coordinator, exactly once per update that it answered kReady (rule V2).
struct Vote {
  UpdateId id;
  bool ready = false;
  bool began = false;
  bool wrote = false;  // bytes went into live memory
  VersionStamp version;
  std::optional<Digest> digest;  // as computed here; none where digests are off
  Mode mode = Mode::kJournal;
  Incarnation incarnation;
  Status error;  // not ok unless ready
};

// The mode leaves live memory alone before the decision: a rank may serve until its fence rises.
inline bool receives_apart(Mode mode) {
  return mode == Mode::kStaged || mode == Mode::kSwap;
}

// coordinator -> rank. Never changes for an id and an engine.
struct Decision {
  UpdateId id;
  bool commit = false;
  Status reason;  // why not, for an abort
};

// rank -> coordinator: the decision was carried out; ends the update for this rank.
struct Finished {
  UpdateId id;
  Incarnation incarnation;
  RankReport report;
};

// coordinator -> rank: every rank of the engine holds this version; steps may run on it (rule V6).
struct Release {
  VersionStamp version;
};

using Message = std::variant<Hello, Welcome, HelloRefused, Begin, BeginReply, SourceDigest, Vote,
                             Decision, Finished, Release>;

}  // namespace changeover::protocol
