#include "reference/digests_reply.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "base/json.h"
#include "model/experts.h"

namespace changeover::reference {
namespace {

using base::JsonKind;
using base::JsonValue;

Status wrong(std::string_view key, std::string_view expected) {
  return {Code::kCorrupt, fmt::format("reply of the rank: \"{}\" is not {}", key, expected)};
}

Result<std::string> string_at(const JsonValue& object, std::string_view key) {
  const auto value = object.find(key);
  const auto text = value ? value->string() : std::nullopt;
  if (!text) {
    return wrong(key, "a string");
  }
  return std::string(*text);
}

Result<int64_t> integer_at(const JsonValue& object, std::string_view key, int64_t least,
                           int64_t most) {
  const auto value = object.find(key);
  const auto number = value ? value->integer() : std::nullopt;
  if (!number || *number < least || *number > most) {
    return wrong(key, fmt::format("an integer from {} to {}", least, most));
  }
  return *number;
}

Result<Digest> digest_at(const JsonValue& object, std::string_view key) {
  CHANGEOVER_TRY_ASSIGN(const std::string text, string_at(object, key));
  auto digest = Digest::parse(text);
  if (!digest.ok()) {
    return wrong(key, "a digest of 32 hex digits");
  }
  return digest;
}

Result<std::vector<std::string>> strings_at(const JsonValue& object, std::string_view key) {
  const auto value = object.find(key);
  if (!value || !value->is(JsonKind::kArray)) {
    return wrong(key, "an array of strings");
  }
  std::vector<std::string> strings;
  for (const JsonValue element : value->elements()) {
    const auto text = element.string();
    if (!text) {
      return wrong(key, "an array of strings");
    }
    strings.emplace_back(*text);
  }
  return strings;
}

std::optional<DType> dtype_of(std::string_view name) {
  const auto wire = dtype_from_wire_name(name);
  return wire ? wire : dtype_from_safetensors_name(name);
}

Result<DType> dtype_at(const JsonValue& object, std::string_view key) {
  CHANGEOVER_TRY_ASSIGN(const std::string name, string_at(object, key));
  const auto dtype = dtype_of(name);
  return dtype ? Result<DType>(*dtype) : wrong(key, "a known dtype");
}

// Where the experts lie, and what is spelled or typed otherwise than config.json tells.
Status read_choices(const JsonValue& plan, PlanOptions& options) {
  const auto experts = plan.find("experts");
  if (!experts) {
    return wrong("experts", "null or an object");
  }
  if (!experts->is(JsonKind::kNull)) {
    CHANGEOVER_TRY_ASSIGN(options.experts, model::read_expert_share(*experts));
  }
  const auto placement = plan.find("placement");
  if (!placement) {
    return wrong("placement", "an object");
  }
  CHANGEOVER_TRY_ASSIGN(options.placement, model::read_expert_placement(*placement));
  CHANGEOVER_TRY_ASSIGN(options.source_form, string_at(plan, "source_form"));
  const auto dtypes = plan.find("dtypes");
  if (!dtypes || !dtypes->is(JsonKind::kArray)) {
    return wrong("dtypes", "an array");
  }
  for (const JsonValue element : dtypes->elements()) {
    DTypeOverride own;
    CHANGEOVER_TRY_ASSIGN(own.parameter, string_at(element, "parameter"));
    CHANGEOVER_TRY_ASSIGN(own.held, dtype_at(element, "held"));
    const auto source = element.find("source");
    if (source && !source->is(JsonKind::kNull)) {
      CHANGEOVER_TRY_ASSIGN(own.source, dtype_at(element, "source"));
    }
    options.dtypes.push_back(std::move(own));
  }
  return {};
}

Status read_plan(const JsonValue& object, DigestsReply& reply) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  const auto plan = object.find("plan");
  if (!plan || !plan->is(JsonKind::kObject)) {
    return wrong("plan", "an object");
  }
  PlanOptions& options = reply.plan_options;
  CHANGEOVER_TRY_ASSIGN(reply.plan_digest, digest_at(*plan, "digest"));
  CHANGEOVER_TRY_ASSIGN(const int64_t size, integer_at(*plan, "tp_size", 1, 1 << 20));
  CHANGEOVER_TRY_ASSIGN(const int64_t rank, integer_at(*plan, "tp_rank", 0, size - 1));
  CHANGEOVER_TRY_ASSIGN(const int64_t generation, integer_at(*plan, "generation", 0, kLargest));
  CHANGEOVER_TRY_ASSIGN(options.vocab_multiple, integer_at(*plan, "vocab_multiple", 1, kLargest));
  CHANGEOVER_TRY(read_choices(*plan, options));
  options.tp_size = static_cast<int32_t>(size);
  options.tp_rank = static_cast<int32_t>(rank);
  options.generation = static_cast<uint64_t>(generation);
  if (const auto dtype = plan->find("dtype"); dtype && !dtype->is(JsonKind::kNull)) {
    options.dtype = dtype_of(dtype->string().value_or(""));
    if (!options.dtype) {
      return wrong("dtype", "null or a known dtype");
    }
  }
  CHANGEOVER_TRY_ASSIGN(options.drop_segments, strings_at(*plan, "drop_segments"));
  CHANGEOVER_TRY_ASSIGN(options.optional_segments, strings_at(*plan, "optional_segments"));
  CHANGEOVER_TRY_ASSIGN(options.strip_prefixes, strings_at(*plan, "strip_prefixes"));
  CHANGEOVER_TRY_ASSIGN(options.add_prefix, string_at(*plan, "add_prefix"));
  CHANGEOVER_TRY_ASSIGN(options.model_file, string_at(*plan, "model_file"));
  return {};
}

Status read_version(const JsonValue& object, DigestsReply& reply) {
  const auto version = object.find("version");
  if (!version) {
    return wrong("version", "null or an object");
  }
  if (version->is(JsonKind::kNull)) {
    return {};
  }
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  VersionStamp stamp;
  CHANGEOVER_TRY_ASSIGN(stamp.epoch, integer_at(*version, "epoch", 0, kLargest));
  CHANGEOVER_TRY_ASSIGN(stamp.version, integer_at(*version, "version", 0, kLargest));
  reply.version = stamp;
  return {};
}

Status read_parameters(const JsonValue& object, DigestsReply& reply) {
  const auto parameters = object.find("parameters");
  if (!parameters || !parameters->is(JsonKind::kArray)) {
    return wrong("parameters", "an array");
  }
  for (const JsonValue element : parameters->elements()) {
    HeldParameter parameter;
    CHANGEOVER_TRY_ASSIGN(parameter.spec.name, string_at(element, "name"));
    CHANGEOVER_TRY_ASSIGN(const std::string dtype, string_at(element, "dtype"));
    const auto known = dtype_of(dtype);
    if (!known) {
      return wrong("dtype", "a known dtype");
    }
    parameter.spec.dtype = *known;
    const auto shape = element.find("shape");
    if (!shape || !shape->is(JsonKind::kArray)) {
      return wrong("shape", "an array of integers");
    }
    for (const JsonValue dimension : shape->elements()) {
      const auto extent = dimension.integer();
      if (!extent || *extent < 0) {
        return wrong("shape", "an array of integers");
      }
      parameter.spec.shape.push_back(*extent);
    }
    CHANGEOVER_TRY_ASSIGN(parameter.digest, digest_at(element, "digest"));
    reply.parameters.push_back(std::move(parameter));
  }
  return {};
}

// What the rank said instead, as its Status.
Status read_error(const JsonValue& root) {
  const auto error = root.find("error");
  if (!error || !error->is(JsonKind::kObject)) {
    return wrong("error", "an object with code and message");
  }
  CHANGEOVER_TRY_ASSIGN(const std::string name, string_at(*error, "code"));
  CHANGEOVER_TRY_ASSIGN(const std::string message, string_at(*error, "message"));
  for (const Code known :
       {Code::kInvalidArgument, Code::kCorrupt, Code::kRefused, Code::kUnavailable, Code::kDeadline,
        Code::kAborted, Code::kInDoubt, Code::kExhausted, Code::kTryLater}) {
    if (code_name(known) == name) {
      return {known, message};
    }
  }
  return {Code::kRefused, message};
}

}  // namespace

Result<DigestsReply> parse_digests_reply(std::string_view line) {
  auto document = base::JsonDocument::parse(line, {.bytes_max = 256ull << 20, .depth_max = 8});
  if (!document.ok()) {
    return document.status().with_context("reply of the rank");
  }
  const JsonValue root = document->root();
  if (const auto format = root.find("format"); !format || format->integer() != 1) {
    return wrong("format", "1");
  }
  const auto ok = root.find("ok");
  if (!ok || !ok->is(JsonKind::kBool)) {
    return wrong("ok", "true or false");
  }
  if (!*ok->boolean()) {
    return read_error(root);
  }
  DigestsReply reply;
  CHANGEOVER_TRY_ASSIGN(reply.rank.engine, string_at(root, "engine"));
  CHANGEOVER_TRY_ASSIGN(const int64_t rank, integer_at(root, "rank", 0, 1 << 20));
  reply.rank.rank = static_cast<int32_t>(rank);
  const auto fenced = root.find("fenced");
  if (!fenced || !fenced->is(JsonKind::kBool)) {
    return wrong("fenced", "true or false");
  }
  reply.fenced = *fenced->boolean();
  CHANGEOVER_TRY_ASSIGN(reply.fence_reason, string_at(root, "fence_reason"));
  CHANGEOVER_TRY(read_version(root, reply));
  CHANGEOVER_TRY(read_plan(root, reply));
  CHANGEOVER_TRY(read_parameters(root, reply));
  return reply;
}

}  // namespace changeover::reference
