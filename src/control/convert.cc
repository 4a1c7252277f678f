#include "control/convert.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "control/codec.h"

namespace changeover::control {
namespace {

std::array<uint8_t, 16> sixteen(const std::string& value, FieldReader& reader, const char* field) {
  std::array<uint8_t, 16> bytes{};
  if (value.size() != bytes.size()) {
    reader.fail(std::string(field) + " has " + std::to_string(value.size()) + " bytes, not 16");
    return bytes;
  }
  std::copy(value.begin(), value.end(), bytes.begin());
  return bytes;
}

}  // namespace

void FieldReader::fail(const std::string& what) {
  if (failure_.ok()) {
    failure_ = changeover::Status(Code::kCorrupt, message_ + ": " + what);
  }
}

std::string FieldReader::text(const std::string& value, const char* field, size_t bytes_max) {
  if (value.size() > bytes_max) {
    fail(std::string(field) + " has " + std::to_string(value.size()) + " bytes, at most " +
         std::to_string(bytes_max));
    return {};
  }
  if (!base::is_valid_utf8(value)) {
    fail(std::string(field) + " is not UTF-8");
    return {};
  }
  return value;
}

int64_t FieldReader::between(int64_t value, int64_t low, int64_t high, const char* field) {
  if (value < low || value > high) {
    fail(std::string(field) + " is " + std::to_string(value) + ", not " + std::to_string(low) +
         " to " + std::to_string(high));
    return low;
  }
  return value;
}

// What this refuses, a report as JSON could not hold.
uint64_t FieldReader::count(uint64_t value, const char* field) {
  if (value > INT64_MAX) {
    fail(std::string(field) + " is " + std::to_string(value) + ", at most " +
         std::to_string(INT64_MAX));
    return 0;
  }
  return value;
}

double FieldReader::seconds(double value, const char* field) {
  if (!std::isfinite(value)) {
    fail(std::string(field) + " is no finite number");
    return 0;
  }
  return value;
}

VersionStamp FieldReader::version(bool present, const pb::VersionStamp& value, const char* field) {
  if (!present) {
    fail(std::string(field) + " is missing");
  }
  // -1 is a reload's "unknown"; it never names an update.
  return {between(value.epoch(), -1, INT64_MAX, field),
          between(value.version(), -1, INT64_MAX, field)};
}

Incarnation FieldReader::incarnation(const std::string& value, const char* field) {
  return {sixteen(value, *this, field)};
}

Digest FieldReader::digest(const std::string& value, const char* field) {
  return {sixteen(value, *this, field)};
}

UpdateId FieldReader::update_id(bool present, const pb::UpdateId& value) {
  if (!present) {
    fail("id is missing");
    return {};
  }
  return {incarnation(value.coordinator(), "id.coordinator"), value.counter()};
}

RankName FieldReader::rank(bool present, const pb::RankName& value) {
  if (!present) {
    fail("rank is missing");
  }
  return {text(value.engine(), "rank.engine", kNameBytesMax),
          static_cast<int32_t>(between(value.rank(), 0, kEngineSizeMax - 1, "rank.rank"))};
}

changeover::Status FieldReader::status(const pb::Status& value, const char* field) {
  const int64_t code = between(value.code(), 0, int64_t(Code::kTryLater), field);
  const std::string message = text(value.message(), field, kTextBytesMax);
  return code == 0 ? changeover::Status() : changeover::Status(static_cast<Code>(code), message);
}

std::string bytes_of(const std::array<uint8_t, 16>& value) {
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

std::string fit(const std::string& text, size_t bytes_max) {
  std::string out = text.substr(0, bytes_max);
  if (out.size() < text.size()) {
    while (!out.empty() && (static_cast<uint8_t>(text[out.size()]) & 0xC0) == 0x80) {
      out.pop_back();
    }
  }
  if (!base::is_valid_utf8(out)) {
    std::replace_if(
        out.begin(), out.end(), [](char c) { return (static_cast<uint8_t>(c) & 0x80) != 0; }, '?');
  }
  return out;
}

void write(const VersionStamp& value, pb::VersionStamp* out) {
  out->set_epoch(value.epoch);
  out->set_version(value.version);
}

void write(const UpdateId& value, pb::UpdateId* out) {
  out->set_coordinator(bytes_of(value.coordinator.bytes));
  out->set_counter(value.counter);
}

void write(const RankName& value, pb::RankName* out) {
  out->set_engine(fit(value.engine, kNameBytesMax));
  out->set_rank(value.rank);
}

void write(const changeover::Status& value, pb::Status* out) {
  out->set_code(static_cast<uint32_t>(value.code()));
  out->set_message(fit(value.message(), kTextBytesMax));
}

void write(const RankReport& value, pb::RankReport* out) {
  write(value.rank, out->mutable_rank());
  out->set_incarnation(bytes_of(value.incarnation.bytes));
  out->set_outcome(static_cast<uint32_t>(value.outcome));
  if (value.version_before) {
    write(*value.version_before, out->mutable_version_before());
  }
  if (value.version) {
    write(*value.version, out->mutable_version());
  }
  if (value.digest) {
    out->set_digest(bytes_of(value.digest->bytes));
  }
  out->set_digest_checked(value.digest_checked);
  out->set_mode(static_cast<uint32_t>(value.mode));
  out->set_way(fit(value.way, kNameBytesMax));
  out->set_road(fit(value.road, kNameBytesMax));
  out->set_road_reason(fit(value.road_reason, kTextBytesMax));
  out->set_pieces_expected(value.pieces_expected);
  out->set_pieces_landed(value.pieces_landed);
  out->set_pieces_derived(value.pieces_derived);
  out->set_bytes_received(value.bytes_received);
  out->set_bytes_written(value.bytes_written);
  out->set_mode_memory_bytes(value.mode_memory_bytes);
  out->set_buckets(value.buckets);
  auto* seconds = out->mutable_seconds();
  seconds->set_begin(value.seconds.begin);
  seconds->set_receive(value.seconds.receive);
  seconds->set_prepare(value.seconds.prepare);
  seconds->set_vote(value.seconds.vote);
  seconds->set_finish(value.seconds.finish);
  seconds->set_pause(value.seconds.pause);
  out->set_cache_policy(fit(value.cache_policy, kNameBytesMax));
  out->set_cache_result(fit(value.cache_result, kTextBytesMax));
  out->set_fenced(value.fenced);
  write(value.error, out->mutable_error());
}

RankReport read_report(const pb::RankReport& value, FieldReader& reader) {
  RankReport out;
  out.rank = reader.rank(value.has_rank(), value.rank());
  out.incarnation = reader.incarnation(value.incarnation(), "report.incarnation");
  out.outcome = static_cast<RankOutcome>(
      reader.between(value.outcome(), 0, int64_t(RankOutcome::kRefused), "report.outcome"));
  if (value.has_version_before()) {
    out.version_before = reader.version(true, value.version_before(), "report.version_before");
  }
  if (value.has_version()) {
    out.version = reader.version(true, value.version(), "report.version");
  }
  if (value.has_digest()) {
    out.digest = reader.digest(value.digest(), "report.digest");
  }
  out.digest_checked = value.digest_checked();
  out.mode =
      static_cast<Mode>(reader.between(value.mode(), 0, int64_t(Mode::kSwap), "report.mode"));
  out.way = reader.text(value.way(), "report.way", kNameBytesMax);
  out.road = reader.text(value.road(), "report.road", kNameBytesMax);
  out.road_reason = reader.text(value.road_reason(), "report.road_reason", kTextBytesMax);
  out.pieces_expected = reader.count(value.pieces_expected(), "report.pieces_expected");
  out.pieces_landed = reader.count(value.pieces_landed(), "report.pieces_landed");
  out.pieces_derived = reader.count(value.pieces_derived(), "report.pieces_derived");
  out.bytes_received = reader.count(value.bytes_received(), "report.bytes_received");
  out.bytes_written = reader.count(value.bytes_written(), "report.bytes_written");
  out.mode_memory_bytes = reader.count(value.mode_memory_bytes(), "report.mode_memory_bytes");
  out.buckets = reader.count(value.buckets(), "report.buckets");
  const auto& seconds = value.seconds();
  out.seconds.begin = reader.seconds(seconds.begin(), "report.seconds.begin");
  out.seconds.receive = reader.seconds(seconds.receive(), "report.seconds.receive");
  out.seconds.prepare = reader.seconds(seconds.prepare(), "report.seconds.prepare");
  out.seconds.vote = reader.seconds(seconds.vote(), "report.seconds.vote");
  out.seconds.finish = reader.seconds(seconds.finish(), "report.seconds.finish");
  out.seconds.pause = reader.seconds(seconds.pause(), "report.seconds.pause");
  out.cache_policy = reader.text(value.cache_policy(), "report.cache_policy", kNameBytesMax);
  out.cache_result = reader.text(value.cache_result(), "report.cache_result", kTextBytesMax);
  out.fenced = value.fenced();
  out.error = reader.status(value.error(), "report.error");
  return out;
}

}  // namespace changeover::control
