#include "runtime/report_reader.h"

#include <string>

#include "base/json.h"

namespace changeover::runtime {
namespace {

using base::JsonValue;

// Reads members of one object; the first failure sticks.
class Reader {
 public:
  Reader(JsonValue object, std::string where, Status& failure)
      : object_(object), where_(std::move(where)), failure_(failure) {}

  JsonValue member(const char* key) {
    const auto value = object_.find(key);
    if (!value) {
      fail(key, "is missing");
      return object_;
    }
    return *value;
  }
  Reader object(const char* key) { return {member(key), where_ + "." + key, failure_}; }
  bool is_null(const char* key) { return member(key).is(base::JsonKind::kNull); }

  int64_t integer(const char* key, int64_t low, int64_t high) {
    const auto value = member(key).integer();
    if (!value || *value < low || *value > high) {
      fail(key, "is no integer in its range");
      return low;
    }
    return *value;
  }
  uint64_t count(const char* key) { return static_cast<uint64_t>(integer(key, 0, INT64_MAX)); }
  double number(const char* key) { return need(member(key).number(), key, "is no number"); }
  bool boolean(const char* key) { return need(member(key).boolean(), key, "is no boolean"); }
  std::string text(const char* key) {
    return std::string(need(member(key).string(), key, "is no string"));
  }
  std::optional<Digest> digest(const char* key) {
    if (is_null(key)) {
      return std::nullopt;
    }
    const auto digest = Digest::parse(text(key));
    if (!digest.ok()) {
      fail(key, digest.status().message());
      return std::nullopt;
    }
    return *digest;
  }
  Incarnation incarnation(const char* key) {
    const auto digits = Digest::parse(text(key));  // The same 32 hex digits.
    if (!digits.ok()) {
      fail(key, "is not 32 hex digits");
      return {};
    }
    return {digits->bytes};
  }
  std::optional<VersionStamp> version(const char* key) {
    if (is_null(key)) {
      return std::nullopt;
    }
    Reader stamp = object(key);
    return VersionStamp{stamp.integer("epoch", -1, INT64_MAX),
                        stamp.integer("version", -1, INT64_MAX)};
  }
  Status status(const char* key) {
    if (is_null(key)) {
      return {};
    }
    Reader status = object(key);
    const std::string name = status.text("code");
    for (int code = 1; code <= int(Code::kTryLater); ++code) {
      if (code_name(static_cast<Code>(code)) == name) {
        return {static_cast<Code>(code), status.text("message")};
      }
    }
    fail(key, "has an unknown code");
    return {};
  }
  void fail(const char* key, const std::string& what) {
    if (failure_.ok()) {
      failure_ = Status(Code::kCorrupt, "report: " + where_ + "." + key + " " + what);
    }
  }

 private:
  template <typename T>
  T need(const std::optional<T>& value, const char* key, const char* what) {
    if (!value) {
      fail(key, what);
      return T{};
    }
    return *value;
  }
  JsonValue object_;
  std::string where_;
  Status& failure_;
};

RankOutcome read_outcome(Reader& reader) {
  const std::string name = reader.text("outcome");
  for (int i = 0; i <= int(RankOutcome::kLeftOut); ++i) {
    if (rank_outcome_name(static_cast<RankOutcome>(i)) == name) {
      return static_cast<RankOutcome>(i);
    }
  }
  reader.fail("outcome", "is unknown");
  return RankOutcome::kLost;
}

RankReport read_rank(Reader reader) {
  RankReport out;
  out.rank = {reader.text("engine"), static_cast<int32_t>(reader.integer("rank", 0, INT32_MAX))};
  out.incarnation = reader.incarnation("incarnation");
  out.outcome = read_outcome(reader);
  out.version_before = reader.version("version_before");
  out.version = reader.version("version");
  out.digest = reader.digest("digest");
  out.digest_checked = reader.boolean("digest_checked");
  const auto mode = parse_mode(reader.text("mode"));
  if (mode.ok()) {
    out.mode = *mode;
  } else {
    reader.fail("mode", "is unknown");
  }
  out.way = reader.text("way");
  out.road = reader.text("road");
  out.road_reason = reader.text("road_reason");
  out.pieces_expected = reader.count("pieces_expected");
  out.pieces_landed = reader.count("pieces_landed");
  out.pieces_derived = reader.count("pieces_derived");
  out.bytes_received = reader.count("bytes_received");
  out.bytes_written = reader.count("bytes_written");
  out.buckets = reader.count("buckets");
  out.mode_memory_bytes = reader.count("mode_memory_bytes");
  Reader seconds = reader.object("seconds");
  out.seconds = {seconds.number("begin"), seconds.number("receive"), seconds.number("prepare"),
                 seconds.number("vote"),  seconds.number("finish"),  seconds.number("pause")};
  out.cache_policy = reader.text("cache_policy");
  out.cache_result = reader.text("cache_result");
  out.fenced = reader.boolean("fenced");
  out.error = reader.status("error");
  return out;
}

}  // namespace

Result<UpdateReport> read_update_report(std::string_view json) {
  CHANGEOVER_TRY_ASSIGN(const auto document, base::JsonDocument::parse(json));
  Status failure;
  Reader reader(document.root(), "$", failure);
  UpdateReport out;
  reader.integer("format", 1, 1);
  Reader id = reader.object("id");
  out.id.coordinator = id.incarnation("coordinator");
  out.id.counter = id.count("counter");
  out.version = reader.version("version").value_or(VersionStamp{});
  out.digest = reader.digest("digest");
  out.digests_on = reader.boolean("digests_on");
  out.status = reader.status("status");
  out.seconds = reader.number("seconds");
  out.payload_bytes = reader.count("payload_bytes");
  out.buckets = reader.count("buckets");
  int index = 0;
  for (const JsonValue rank : reader.member("ranks").elements()) {
    out.ranks.push_back(read_rank({rank, "ranks[" + std::to_string(index++) + "]", failure}));
  }
  CHANGEOVER_TRY(failure);
  return out;
}

}  // namespace changeover::runtime
