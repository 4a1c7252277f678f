// What an update did, the same type in C++, JSON and (later) Python (rule T14).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover {

// Seconds each phase took, on the rank's own clock; 0 where the phase was not reached.
struct PhaseSeconds {
  double begin = 0;    // begin accepted -> first frame
  double receive = 0;  // first frame -> END
  double prepare = 0;  // END -> vote sent
  double vote = 0;     // vote sent -> decision received
  double finish = 0;   // decision -> finished
  double pause = 0;    // fence up -> steps allowed again (for an abort: -> fence down, if at all)
};

enum class RankOutcome : uint8_t {
  kCommitted,     // Serves the new version.
  kAlreadyThere,  // Held this version and digest before; nothing was done.
  kRestored,      // Aborted; the old version's bytes are back (or were never touched) and serve.
  kFenced,        // Aborted; memory may be mixed; refuses to serve.
  kInDoubt,       // Prepared; the decision did not arrive.
  kLost,          // No word from the rank: died, dropped, or cut off.
  kRefused,       // Refused the begin: nothing was sent to it, nothing changed.
  kLeftOut,       // Connected, but its engine lacked a rank: nothing was sent to it (rule M5).
};
std::string_view rank_outcome_name(RankOutcome outcome);  // "committed", "already_there", ...

struct RankReport {
  RankName rank;
  Incarnation incarnation;
  RankOutcome outcome = RankOutcome::kLost;
  std::optional<VersionStamp> version_before;
  std::optional<VersionStamp> version;  // What it holds now; none = no whole version.
  std::optional<Digest> digest;         // Of the version it holds, where known.
  bool digest_checked = false;          // The bytes of this update were digested and compared.
  Mode mode = Mode::kJournal;
  std::string way;          // "stream"
  std::string road;         // "shm", "tcp", "file"
  std::string road_reason;  // Why this road and no faster one (rule M6).
  uint64_t pieces_expected = 0;
  uint64_t pieces_landed = 0;
  uint64_t pieces_derived = 0;
  uint64_t bytes_received = 0;  // Payload bytes that crossed the road to this rank.
  uint64_t bytes_written = 0;   // Bytes written into parameters.
  uint64_t buckets = 0;
  // What the mode holds beside the live parameters, all the time: the journal, or the second half.
  uint64_t mode_memory_bytes = 0;
  PhaseSeconds seconds;
  std::string cache_policy;  // "none", "flush", "salt", "keep" (rule T12)
  std::string cache_result;
  bool fenced = false;
  Status error;  // Ok unless this rank failed or was taken down by a peer.
};

struct UpdateReport {
  UpdateId id;
  VersionStamp version;
  std::optional<Digest> digest;  // Of the source; none where digests are off.
  bool digests_on = true;
  // Ok only if every rank committed or was already there; left-out ranks do not count.
  Status status;
  double seconds = 0;          // Whole update, on the publisher's clock.
  uint64_t payload_bytes = 0;  // Of one copy of the model, as sent.
  uint64_t buckets = 0;
  std::vector<RankReport> ranks;  // Sorted by engine, then rank.
};

std::string update_report_to_json(const UpdateReport& report);  // "format": 1, docs/report.md
Result<UpdateReport> parse_update_report(std::string_view json);

}  // namespace changeover
