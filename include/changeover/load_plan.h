// Which piece of which source tensor fills which part of which parameter, for one rank.
//
// A LoadPlan is plain data. It comes from a model file and a config.json (make_load_plan) or from
// an engine as JSON (parse_load_plan), and is proved before it is used (prove_load_plan): the
// pieces of every parameter tile it exactly, declared padding included (rule T4). Formats and
// grammar: docs/models.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/dtype.h>
#include <changeover/experts.h>
#include <changeover/status.h>
#include <changeover/tensor.h>
#include <changeover/types.h>

namespace changeover {

inline constexpr int kViewDimsMax = 8;

// A set of elements of a tensor: offset + sum(index_k * stride_k), index_k < extent_k, all in
// elements of the tensor in C order. Dimension order is the order in which two views of a piece
// are matched up: element (i, j, ...) of the source view goes to element (i, j, ...) of the target.
struct View {
  struct Dim {
    int64_t extent = 0;
    int64_t stride = 0;
    bool operator==(const Dim&) const = default;
  };
  int64_t offset = 0;
  std::vector<Dim> dims;  // At most kViewDimsMax; none = one element.
  bool operator==(const View&) const = default;
};

// What happens to the bytes on the way. A change of dtype is never silent (rule T6).
enum class PieceOp : uint8_t {
  kCopy,  // Source and parameter have one dtype; bytes are copied.
  kCast,  // Declared change of floating dtype, round to nearest even.
};

struct Source {
  TensorSpec spec;  // As the publisher must send it: name, dtype, shape.
  // Other names the same content may come under (tied embeddings). If several come they must be
  // bitwise equal, and count once (rule T4).
  std::vector<std::string> aliases;
  bool operator==(const Source&) const = default;
};

struct Piece {
  uint32_t source = 0;     // Index into LoadPlan::sources.
  uint32_t parameter = 0;  // Index into LoadPlan::parameters.
  View source_view;
  View target_view;  // Same extents as source_view, dimension by dimension.
  PieceOp op = PieceOp::kCopy;
  std::string part;  // For messages: "q", "gate", "" for a parameter of one piece.
  bool operator==(const Piece&) const = default;
};

// A part of a parameter that no source fills: zero when the store is made, never written.
struct Padding {
  uint32_t parameter = 0;
  View view;
  bool operator==(const Padding&) const = default;
};

// A value computed from other parameters in prepare (quantisation scales). Kept in the format from
// the start; a plan that has any is refused until quantisation is there.
struct Derived {
  std::vector<std::string> inputs;
  std::string op;
  std::string output;
  bool operator==(const Derived&) const = default;
};

struct LoadPlan {
  uint64_t generation = 0;  // Rule T15.
  int32_t tp_rank = 0;
  int32_t tp_size = 1;
  ExpertShare experts;
  std::string architecture;            // For messages, e.g. "LlamaForCausalLM".
  std::vector<TensorSpec> parameters;  // This rank's, in the engine's own layout, C-contiguous.
  std::vector<Source> sources;
  std::vector<Piece> pieces;
  std::vector<Padding> paddings;
  std::vector<Derived> derived;
  std::vector<std::string> ignorable;  // Source names this rank may receive and drop ('*' = any run
                                       // of characters without '.').
  // Declared name rules (case B17), applied to an incoming name before it is looked up: whole path
  // segments to drop wherever they stand ("_fsdp_wrapped_module"), prefixes of whole segments (the
  // longest that matches is stripped, once), a prefix to add after that.
  std::vector<std::string> drop_segments;
  // Segments that may stand in a name or not, on either side ("base_layer", case B18): names that
  // differ in them alone are one. A plan that owns two such names is ambiguous, and refused.
  std::vector<std::string> optional_segments;
  std::vector<std::string> strip_prefixes;
  std::string add_prefix;
  bool operator==(const LoadPlan&) const = default;
};

// A dtype that config.json does not tell: routers that are kept in float32, for one.
struct DTypeOverride {
  std::string parameter;        // Its name, or a pattern as in LoadPlan::ignorable.
  DType held = DType::kF32;     // As the rank holds it ...
  std::optional<DType> source;  // ... and as its sources come, if that differs: they are cast.
  bool operator==(const DTypeOverride&) const = default;
};

// What make_load_plan needs beside the model's config.
struct PlanOptions {
  int32_t tp_rank = 0;
  int32_t tp_size = 1;
  std::optional<ExpertShare> experts;  // None: every expert is cut over tp_size like all else.
  ExpertPlacement placement;
  // Which of the spellings that the model file knows the sources come in: "per_expert" (a
  // checkpoint) or "fused" (what transformers 5 holds). Empty = the file's first.
  std::string source_form;
  std::vector<DTypeOverride> dtypes;  // Each must match a parameter; the first that does applies.
  uint64_t generation = 0;
  int64_t vocab_multiple = 64;  // The vocabulary is padded to a multiple of it (and to tp).
  std::optional<DType> dtype;   // Parameter dtype where the config names none.
  std::vector<std::string> drop_segments;
  std::vector<std::string> optional_segments;
  std::vector<std::string> strip_prefixes;
  std::string add_prefix;
  std::filesystem::path model_file;  // Empty = the built-in one for config.json's architecture.
};

// Sets tp_rank, tp_size and experts for one rank of an engine. kInvalidArgument for a shape that
// rank_count() refuses, or a rank outside it.
Status place_rank(const EngineShape& shape, int32_t rank, PlanOptions& options);

// Reads `directory`/config.json (or the file itself), finds the model file of its architecture and
// returns this rank's proved plan. kInvalidArgument names the missing key, the unknown
// architecture, or the count that tp_size does not divide.
Result<LoadPlan> make_load_plan(const std::filesystem::path& config, const PlanOptions& options);

// ok if every parameter is tiled exactly once by pieces and paddings and every view lies within its
// tensor; else kInvalidArgument naming the parameter, the piece and the first element at fault.
Status prove_load_plan(const LoadPlan& plan);

// JSON with "format": 1 (docs/models.md). parse refuses unknown keys and unproved plans.
std::string load_plan_to_json(const LoadPlan& plan);
Result<LoadPlan> parse_load_plan(std::string_view json);

// XXH3-128 of the plan's canonical bytes (its JSON in canonical order): equal plans, equal digests.
Digest load_plan_digest(const LoadPlan& plan);

// Architectures with a built-in model file, sorted; `parse_only` ones cannot make a plan yet.
struct ModelFileInfo {
  std::string architecture;
  bool parse_only = false;
};
std::vector<ModelFileInfo> model_files();

}  // namespace changeover
