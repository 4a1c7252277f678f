// The load plan as JSON, "format": 1 (docs/models.md). What is written is canonical: fixed key
// order, every key, no white space. What is read may come from a peer.
#include <span>

#include <changeover/load_plan.h>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/experts.h"
#include "model/fields.h"
#include "model/plan_limits.h"

namespace changeover {
namespace {

using base::JsonValue;
using model::Fields;

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

// [write(first),write(second),...]
template <typename List, typename Write>
void append_list(std::string& out, const List& list, Write write) {
  out += '[';
  bool first = true;
  for (const auto& element : list) {
    out += first ? "" : ",";
    first = false;
    write(element);
  }
  out += ']';
}

void append_strings(std::string& out, std::string_view key, std::span<const std::string> texts) {
  out += fmt::format(",\"{}\":", key);
  append_list(out, texts, [&](const std::string& text) { append_string(out, text); });
}

void append_spec(std::string& out, const TensorSpec& spec) {
  out += "{\"name\":";
  append_string(out, spec.name);
  out += fmt::format(",\"dtype\":\"{}\",\"shape\":", dtype_name(spec.dtype));
  append_list(out, spec.shape, [&](int64_t extent) { out += std::to_string(extent); });
}

void append_view(std::string& out, const View& view) {
  out += fmt::format("{{\"offset\":{},\"dims\":", view.offset);
  append_list(out, view.dims,
              [&](const View::Dim& dim) { out += fmt::format("[{},{}]", dim.extent, dim.stride); });
  out += '}';
}

void append_piece(std::string& out, const Piece& piece) {
  out += fmt::format("{{\"source\":{},\"parameter\":{},\"part\":", piece.source, piece.parameter);
  append_string(out, piece.part);
  out +=
      fmt::format(",\"op\":\"{}\",\"source_view\":", piece.op == PieceOp::kCast ? "cast" : "copy");
  append_view(out, piece.source_view);
  out += ",\"target_view\":";
  append_view(out, piece.target_view);
  out += '}';
}

// Everything below reads.

Status invalid(std::string text) {
  return {Code::kInvalidArgument, text};
}

Result<TensorSpec> read_spec(const Fields& fields) {
  TensorSpec spec;
  CHANGEOVER_TRY_ASSIGN(const std::string_view name, fields.string("name"));
  spec.name = std::string(name);
  CHANGEOVER_TRY_ASSIGN(const std::optional<DType> dtype, fields.dtype("dtype"));
  if (!dtype) {
    return invalid("the key \"dtype\" is missing");
  }
  spec.dtype = *dtype;
  CHANGEOVER_TRY_ASSIGN(spec.shape, fields.integers("shape", kTensorDimsMax));
  return spec;
}

Result<View> read_view(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields fields, Fields::make(value, {"offset", "dims"}));
  View view;
  CHANGEOVER_TRY_ASSIGN(view.offset, fields.integer("offset", 0, INT64_MAX));
  CHANGEOVER_TRY_ASSIGN(const JsonValue dims, fields.array("dims", kViewDimsMax));
  for (const JsonValue element : dims.elements()) {
    if (!element.is(base::JsonKind::kArray) || element.size() != 2) {
      return invalid("\"dims\": each should be [extent, stride]");
    }
    auto number = element.elements().begin();
    const auto extent = (*number).integer();
    ++number;
    const auto stride = (*number).integer();
    if (!extent || !stride) {
      return invalid("\"dims\": extent and stride should be integers");
    }
    view.dims.push_back({*extent, *stride});
  }
  return view;
}

Result<View> read_view_of(const Fields& fields, std::string_view key) {
  CHANGEOVER_TRY_ASSIGN(const JsonValue value, fields.required(key));
  Result<View> view = read_view(value);
  return view.ok() ? std::move(view) : view.status().with_context(key);
}

Result<Source> read_source(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields fields,
                        Fields::make(value, {"name", "dtype", "shape", "aliases"}));
  Source source;
  CHANGEOVER_TRY_ASSIGN(source.spec, read_spec(fields));
  if (fields.find("aliases")) {
    CHANGEOVER_TRY_ASSIGN(source.aliases, fields.strings("aliases", 16));
  }
  return source;
}

Result<TensorSpec> read_parameter(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields fields, Fields::make(value, {"name", "dtype", "shape"}));
  return read_spec(fields);
}

Result<Piece> read_piece(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(
      const Fields fields,
      Fields::make(value, {"source", "parameter", "part", "op", "source_view", "target_view"}));
  Piece piece;
  CHANGEOVER_TRY_ASSIGN(const int64_t source, fields.integer("source", 0, UINT32_MAX));
  CHANGEOVER_TRY_ASSIGN(const int64_t parameter, fields.integer("parameter", 0, UINT32_MAX));
  CHANGEOVER_TRY_ASSIGN(const std::string_view part, fields.string_or("part", ""));
  CHANGEOVER_TRY_ASSIGN(const std::string_view op, fields.string_or("op", "copy"));
  if (op != "copy" && op != "cast") {
    return invalid(fmt::format("no op is called {}; there are copy and cast", base::quoted(op)));
  }
  piece.source = static_cast<uint32_t>(source);
  piece.parameter = static_cast<uint32_t>(parameter);
  piece.part = std::string(part);
  piece.op = op == "cast" ? PieceOp::kCast : PieceOp::kCopy;
  CHANGEOVER_TRY_ASSIGN(piece.source_view, read_view_of(fields, "source_view"));
  CHANGEOVER_TRY_ASSIGN(piece.target_view, read_view_of(fields, "target_view"));
  return piece;
}

Result<Padding> read_padding(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields fields, Fields::make(value, {"parameter", "view"}));
  CHANGEOVER_TRY_ASSIGN(const int64_t parameter, fields.integer("parameter", 0, UINT32_MAX));
  Padding padding;
  padding.parameter = static_cast<uint32_t>(parameter);
  CHANGEOVER_TRY_ASSIGN(padding.view, read_view_of(fields, "view"));
  return padding;
}

Result<Derived> read_derived(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields fields, Fields::make(value, {"inputs", "op", "output"}));
  Derived derived;
  CHANGEOVER_TRY_ASSIGN(derived.inputs, fields.strings("inputs", model::kPlanEntriesMax));
  CHANGEOVER_TRY_ASSIGN(const std::string_view op, fields.string("op"));
  CHANGEOVER_TRY_ASSIGN(const std::string_view output, fields.string("output"));
  derived.op = std::string(op);
  derived.output = std::string(output);
  return derived;
}

template <typename T>
Status read_list(const Fields& root, std::string_view key, bool required,
                 Result<T> (*read)(JsonValue), std::vector<T>& out) {
  if (!required && !root.find(key)) {
    return {};
  }
  CHANGEOVER_TRY_ASSIGN(const JsonValue list, root.array(key, model::kPlanEntriesMax));
  for (const JsonValue element : list.elements()) {
    Result<T> entry = read(element);
    CHANGEOVER_TRY(entry.status().with_context(fmt::format("{}[{}]", key, out.size())));
    out.push_back(std::move(entry).take());
  }
  return {};
}

Status read_strings(const Fields& root, std::string_view key, std::vector<std::string>& out) {
  if (root.find(key)) {
    CHANGEOVER_TRY_ASSIGN(out, root.strings(key, model::kPlanEntriesMax));
  }
  return {};
}

Result<LoadPlan> read_plan(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(
      const Fields root,
      Fields::make(value, {"format", "generation", "tp_rank", "tp_size", "experts", "architecture",
                           "parameters", "sources", "pieces", "paddings", "derived", "ignorable",
                           "drop_segments", "optional_segments", "strip_prefixes", "add_prefix"}));
  CHANGEOVER_TRY(root.integer("format", 1, 1).status());
  LoadPlan plan;
  CHANGEOVER_TRY_ASSIGN(const int64_t generation, root.integer_or("generation", 0, INT64_MAX, 0));
  CHANGEOVER_TRY_ASSIGN(const int64_t rank, root.integer("tp_rank", 0, model::kTpSizeMax));
  CHANGEOVER_TRY_ASSIGN(const int64_t size, root.integer("tp_size", 1, model::kTpSizeMax));
  CHANGEOVER_TRY_ASSIGN(const std::string_view architecture, root.string_or("architecture", ""));
  CHANGEOVER_TRY_ASSIGN(const std::string_view add_prefix, root.string_or("add_prefix", ""));
  plan.generation = static_cast<uint64_t>(generation);
  plan.tp_rank = static_cast<int32_t>(rank);
  plan.tp_size = static_cast<int32_t>(size);
  plan.experts = {0, 1, plan.tp_rank, plan.tp_size};
  if (const auto experts = root.find("experts")) {
    CHANGEOVER_TRY_ASSIGN(plan.experts, model::read_expert_share(*experts));
  }
  plan.architecture = std::string(architecture);
  plan.add_prefix = std::string(add_prefix);
  CHANGEOVER_TRY(read_list(root, "parameters", true, read_parameter, plan.parameters));
  CHANGEOVER_TRY(read_list(root, "sources", true, read_source, plan.sources));
  CHANGEOVER_TRY(read_list(root, "pieces", true, read_piece, plan.pieces));
  CHANGEOVER_TRY(read_list(root, "paddings", false, read_padding, plan.paddings));
  CHANGEOVER_TRY(read_list(root, "derived", false, read_derived, plan.derived));
  CHANGEOVER_TRY(read_strings(root, "ignorable", plan.ignorable));
  CHANGEOVER_TRY(read_strings(root, "drop_segments", plan.drop_segments));
  CHANGEOVER_TRY(read_strings(root, "optional_segments", plan.optional_segments));
  CHANGEOVER_TRY(read_strings(root, "strip_prefixes", plan.strip_prefixes));
  return plan;
}

}  // namespace

std::string load_plan_to_json(const LoadPlan& plan) {
  std::string out = fmt::format(
      "{{\"format\":1,\"generation\":{},\"tp_rank\":{},\"tp_size\":{},\"experts\":{{\"ep_rank\":{},"
      "\"ep_size\":{},\"tp_rank\":{},\"tp_size\":{}}},\"architecture\":",
      plan.generation, plan.tp_rank, plan.tp_size, plan.experts.ep_rank, plan.experts.ep_size,
      plan.experts.tp_rank, plan.experts.tp_size);
  append_string(out, plan.architecture);
  out += ",\"parameters\":";
  append_list(out, plan.parameters, [&](const TensorSpec& spec) {
    append_spec(out, spec);
    out += '}';
  });
  out += ",\"sources\":";
  append_list(out, plan.sources, [&](const Source& source) {
    append_spec(out, source.spec);
    append_strings(out, "aliases", source.aliases);
    out += '}';
  });
  out += ",\"pieces\":";
  append_list(out, plan.pieces, [&](const Piece& piece) { append_piece(out, piece); });
  out += ",\"paddings\":";
  append_list(out, plan.paddings, [&](const Padding& padding) {
    out += fmt::format("{{\"parameter\":{},\"view\":", padding.parameter);
    append_view(out, padding.view);
    out += '}';
  });
  out += ",\"derived\":";
  append_list(out, plan.derived, [&](const Derived& derived) {
    out += "{\"op\":";
    append_string(out, derived.op);
    out += ",\"output\":";
    append_string(out, derived.output);
    append_strings(out, "inputs", derived.inputs);
    out += '}';
  });
  append_strings(out, "ignorable", plan.ignorable);
  append_strings(out, "drop_segments", plan.drop_segments);
  append_strings(out, "optional_segments", plan.optional_segments);
  append_strings(out, "strip_prefixes", plan.strip_prefixes);
  out += ",\"add_prefix\":";
  append_string(out, plan.add_prefix);
  out += '}';
  return out;
}

Result<LoadPlan> parse_load_plan(std::string_view json) {
  Result<base::JsonDocument> document =
      base::JsonDocument::parse(json, {.bytes_max = model::kPlanBytesMax, .depth_max = 8});
  if (!document.ok()) {
    return document.status().with_context("load plan");
  }
  Result<LoadPlan> plan = read_plan(document->root());
  CHANGEOVER_TRY(plan.status().with_context("load plan"));
  CHANGEOVER_TRY(prove_load_plan(*plan));
  return plan;
}

Digest load_plan_digest(const LoadPlan& plan) {
  const std::string json = load_plan_to_json(plan);
  return base::digest(std::as_bytes(std::span(json)));
}

}  // namespace changeover
