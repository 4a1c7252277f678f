#include "control/codec.h"

#include <utility>

#include "control/convert.h"

namespace changeover::control {
namespace {

using protocol::Message;

void put(const protocol::Hello& value, pb::Envelope& envelope) {
  auto* out = envelope.mutable_hello();
  out->set_job(fit(value.job, kNameBytesMax));
  write(value.rank, out->mutable_rank());
  out->set_engine_size(value.engine_size);
  out->set_incarnation(bytes_of(value.incarnation.bytes));
  out->set_mode(static_cast<uint32_t>(value.mode));
  if (value.version) {
    write(*value.version, out->mutable_version());
  }
  if (value.digest) {
    out->set_digest(bytes_of(value.digest->bytes));
  }
  out->set_fenced(value.fenced);
  out->set_gate_open(value.gate_open);
  if (value.prepared) {
    write(*value.prepared, out->mutable_prepared());
  }
  out->set_plan_digest(bytes_of(value.plan_digest.bytes));
  out->set_plan_generation(value.plan_generation);
  for (const std::string& capability : value.capabilities) {
    out->add_capabilities(fit(capability, kNameBytesMax));
  }
  out->set_payload_bytes_max(value.payload_bytes_max);
  out->set_metadata_bytes_max(value.metadata_bytes_max);
  out->set_host(fit(value.host, kNameBytesMax));
  out->set_pid(value.pid);
}

void put(const protocol::Welcome& value, pb::Envelope& envelope) {
  envelope.mutable_welcome()->set_coordinator(bytes_of(value.coordinator.bytes));
}

void put(const protocol::HelloRefused& value, pb::Envelope& envelope) {
  write(value.why, envelope.mutable_hello_refused()->mutable_why());
  envelope.mutable_hello_refused()->set_retry(value.retry);
}

void put(const protocol::Begin& value, pb::Envelope& envelope) {
  auto* out = envelope.mutable_begin();
  write(value.id, out->mutable_id());
  write(value.version, out->mutable_version());
  if (value.digest) {
    out->set_digest(bytes_of(value.digest->bytes));
  }
  out->set_digests_on(value.digests_on);
  out->set_payload_bytes_max(value.payload_bytes_max);
  out->set_metadata_bytes_max(value.metadata_bytes_max);
  out->set_stream_id(value.stream_id);
  out->set_payload_bytes_total(value.payload_bytes_total);
}

void put(const protocol::BeginReply& value, pb::Envelope& envelope) {
  auto* out = envelope.mutable_begin_reply();
  write(value.id, out->mutable_id());
  out->set_incarnation(bytes_of(value.incarnation.bytes));
  out->set_kind(static_cast<uint32_t>(value.kind));
  write(value.why, out->mutable_why());
}

void put(const protocol::SourceDigest& value, pb::Envelope& envelope) {
  auto* out = envelope.mutable_source_digest();
  write(value.id, out->mutable_id());
  out->set_checking(value.checking);
  if (value.digest) {
    out->set_digest(bytes_of(value.digest->bytes));
  }
}

void put(const protocol::Vote& value, pb::Envelope& envelope) {
  auto* out = envelope.mutable_vote();
  write(value.id, out->mutable_id());
  out->set_ready(value.ready);
  out->set_began(value.began);
  out->set_wrote(value.wrote);
  write(value.version, out->mutable_version());
  if (value.digest) {
    out->set_digest(bytes_of(value.digest->bytes));
  }
  out->set_mode(static_cast<uint32_t>(value.mode));
  out->set_incarnation(bytes_of(value.incarnation.bytes));
  write(value.error, out->mutable_error());
}

void put(const protocol::Decision& value, pb::Envelope& envelope) {
  auto* out = envelope.mutable_decision();
  write(value.id, out->mutable_id());
  out->set_commit(value.commit);
  write(value.reason, out->mutable_reason());
}

void put(const protocol::Finished& value, pb::Envelope& envelope) {
  auto* out = envelope.mutable_finished();
  write(value.id, out->mutable_id());
  out->set_incarnation(bytes_of(value.incarnation.bytes));
  write(value.report, out->mutable_report());
}

void put(const protocol::Release& value, pb::Envelope& envelope) {
  write(value.version, envelope.mutable_release()->mutable_version());
}

protocol::Hello get(const pb::Hello& in, FieldReader& reader) {
  protocol::Hello out;
  out.job = reader.text(in.job(), "job", kNameBytesMax);
  out.rank = reader.rank(in.has_rank(), in.rank());
  out.engine_size =
      static_cast<int32_t>(reader.between(in.engine_size(), 1, kEngineSizeMax, "engine_size"));
  out.incarnation = reader.incarnation(in.incarnation(), "incarnation");
  out.mode = static_cast<Mode>(reader.between(in.mode(), 0, int64_t(Mode::kSwap), "mode"));
  if (in.has_version()) {
    out.version = reader.version(true, in.version(), "version");
  }
  if (in.has_digest()) {
    out.digest = reader.digest(in.digest(), "digest");
  }
  out.fenced = in.fenced();
  out.gate_open = in.gate_open();
  if (in.has_prepared()) {
    out.prepared = reader.update_id(true, in.prepared());
  }
  out.plan_digest = reader.digest(in.plan_digest(), "plan_digest");
  out.plan_generation = in.plan_generation();
  reader.between(in.capabilities_size(), 0, kCapabilitiesMax, "count of capabilities");
  for (int i = 0; i < in.capabilities_size() && reader.failure().ok(); ++i) {
    out.capabilities.push_back(reader.text(in.capabilities(i), "capability", kNameBytesMax));
  }
  out.payload_bytes_max = in.payload_bytes_max();
  out.metadata_bytes_max = in.metadata_bytes_max();
  out.host = reader.text(in.host(), "host", kNameBytesMax);
  out.pid = in.pid();
  return out;
}

protocol::Welcome get(const pb::Welcome& in, FieldReader& reader) {
  return {reader.incarnation(in.coordinator(), "coordinator")};
}

protocol::HelloRefused get(const pb::HelloRefused& in, FieldReader& reader) {
  return {reader.status(in.why(), "why"), in.retry()};
}

protocol::Begin get(const pb::Begin& in, FieldReader& reader) {
  protocol::Begin out;
  out.id = reader.update_id(in.has_id(), in.id());
  out.version = reader.version(in.has_version(), in.version(), "version");
  if (in.has_digest()) {
    out.digest = reader.digest(in.digest(), "digest");
  }
  out.digests_on = in.digests_on();
  out.payload_bytes_max = in.payload_bytes_max();
  out.metadata_bytes_max = in.metadata_bytes_max();
  out.stream_id = in.stream_id();
  out.payload_bytes_total = in.payload_bytes_total();
  return out;
}

protocol::BeginReply get(const pb::BeginReply& in, FieldReader& reader) {
  return {reader.update_id(in.has_id(), in.id()),
          reader.incarnation(in.incarnation(), "incarnation"),
          static_cast<protocol::BeginKind>(
              reader.between(in.kind(), 0, int64_t(protocol::BeginKind::kNeedDigest), "kind")),
          reader.status(in.why(), "why")};
}

protocol::SourceDigest get(const pb::SourceDigest& in, FieldReader& reader) {
  protocol::SourceDigest out;
  out.id = reader.update_id(in.has_id(), in.id());
  out.checking = in.checking();
  if (in.has_digest()) {
    out.digest = reader.digest(in.digest(), "digest");
  }
  return out;
}

protocol::Vote get(const pb::Vote& in, FieldReader& reader) {
  protocol::Vote out;
  out.id = reader.update_id(in.has_id(), in.id());
  out.ready = in.ready();
  out.began = in.began();
  out.wrote = in.wrote();
  out.version = reader.version(in.has_version(), in.version(), "version");
  if (in.has_digest()) {
    out.digest = reader.digest(in.digest(), "digest");
  }
  out.mode = static_cast<Mode>(reader.between(in.mode(), 0, int64_t(Mode::kSwap), "mode"));
  out.incarnation = reader.incarnation(in.incarnation(), "incarnation");
  out.error = reader.status(in.error(), "error");
  return out;
}

protocol::Decision get(const pb::Decision& in, FieldReader& reader) {
  return {reader.update_id(in.has_id(), in.id()), in.commit(),
          reader.status(in.reason(), "reason")};
}

protocol::Finished get(const pb::Finished& in, FieldReader& reader) {
  if (!in.has_report()) {
    reader.fail("report is missing");
    return {};
  }
  return {reader.update_id(in.has_id(), in.id()),
          reader.incarnation(in.incarnation(), "incarnation"), read_report(in.report(), reader)};
}

protocol::Release get(const pb::Release& in, FieldReader& reader) {
  return {reader.version(in.has_version(), in.version(), "version")};
}

template <typename In>
Result<Message> read(const char* name, const In& in) {
  FieldReader reader(name);
  Message out = get(in, reader);
  CHANGEOVER_TRY(reader.failure());
  return out;
}

// "field number 99", which names the type of an envelope that this release does not know.
std::string first_field(std::span<const uint8_t> bytes) {
  uint64_t tag = 0;
  for (size_t i = 0; i < bytes.size() && i < 5; ++i) {
    tag |= uint64_t{bytes[i] & 0x7Fu} << (7 * i);
    if ((bytes[i] & 0x80) == 0) {
      return "field number " + std::to_string(tag >> 3);
    }
  }
  return "no field";
}

constexpr const char* kNames[] = {"hello",       "welcome",       "hello_refused", "begin",
                                  "begin_reply", "source_digest", "vote",          "decision",
                                  "finished",    "release"};

}  // namespace

std::string_view message_name(const Message& message) {
  return kNames[message.index()];
}

std::vector<uint8_t> encode(const Message& message) {
  pb::Envelope envelope;
  std::visit([&](const auto& value) { put(value, envelope); }, message);
  std::vector<uint8_t> bytes(envelope.ByteSizeLong());
  envelope.SerializeWithCachedSizesToArray(bytes.data());
  return bytes;
}

Result<Message> decode(std::span<const uint8_t> bytes) {
  pb::Envelope in;
  if (!in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Status(Code::kCorrupt, "control frame of " + std::to_string(bytes.size()) +
                                      " bytes is no changeover.control.v1.Envelope");
  }
  switch (in.body_case()) {
    case pb::Envelope::kHello:
      return read("hello", in.hello());
    case pb::Envelope::kWelcome:
      return read("welcome", in.welcome());
    case pb::Envelope::kHelloRefused:
      return read("hello_refused", in.hello_refused());
    case pb::Envelope::kBegin:
      return read("begin", in.begin());
    case pb::Envelope::kBeginReply:
      return read("begin_reply", in.begin_reply());
    case pb::Envelope::kSourceDigest:
      return read("source_digest", in.source_digest());
    case pb::Envelope::kVote:
      return read("vote", in.vote());
    case pb::Envelope::kDecision:
      return read("decision", in.decision());
    case pb::Envelope::kFinished:
      return read("finished", in.finished());
    case pb::Envelope::kRelease:
      return read("release", in.release());
    case pb::Envelope::BODY_NOT_SET:
      break;
  }
  return Status(Code::kCorrupt, "control message of an unknown type (" + first_field(bytes) +
                                    "): use one release on both sides");
}

}  // namespace changeover::control
