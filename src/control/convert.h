// Field by field between plain structs and protobuf. Includes protobuf.
#pragma once

#include <string>

#include <changeover/report.h>

#include "control/control.pb.h"
#include "protocol/messages.h"

namespace changeover::control {

namespace pb = changeover::control::v1;

// Reads fields of one message; the first failure sticks and names message and field.
class FieldReader {
 public:
  explicit FieldReader(std::string message) : message_(std::move(message)) {}

  std::string text(const std::string& value, const char* field, size_t bytes_max);
  VersionStamp version(bool present, const pb::VersionStamp& value, const char* field);
  UpdateId update_id(bool present, const pb::UpdateId& value);
  Incarnation incarnation(const std::string& value, const char* field);
  Digest digest(const std::string& value, const char* field);
  RankName rank(bool present, const pb::RankName& value);
  changeover::Status status(const pb::Status& value, const char* field);
  uint64_t count(uint64_t value, const char* field);
  double seconds(double value, const char* field);
  int64_t between(int64_t value, int64_t low, int64_t high, const char* field);
  void fail(const std::string& what);

  const changeover::Status& failure() const { return failure_; }

 private:
  std::string message_;
  changeover::Status failure_;
};

void write(const VersionStamp& value, pb::VersionStamp* out);
void write(const UpdateId& value, pb::UpdateId* out);
void write(const RankName& value, pb::RankName* out);
void write(const changeover::Status& value, pb::Status* out);
std::string bytes_of(const std::array<uint8_t, 16>& value);
// At most `bytes_max` bytes of valid UTF-8, cut at a character.
std::string fit(const std::string& text, size_t bytes_max);

void write(const RankReport& value, pb::RankReport* out);
RankReport read_report(const pb::RankReport& value, FieldReader& reader);

}  // namespace changeover::control
