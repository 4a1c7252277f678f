// A model file: an architecture as data. The language is described in docs/models.md; this is its
// form after parsing, still free of any config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <changeover/dtype.h>
#include <changeover/load_plan.h>
#include <changeover/status.h>

#include "model/expression.h"

namespace changeover::model {

// A name with holes: literal text, then a variable, in turn. "model.layers.{layer}.w".
struct Pattern {
  struct Chunk {
    std::string literal;
    std::string variable;  // Empty in the last chunk.
  };
  std::vector<Chunk> chunks;
};

// variable = from .. to - 1
struct Loop {
  std::string variable;
  std::optional<Expression> from;  // None = 0.
  Expression to;
};

// How a dimension is dealt out to the ranks; the meaning is the part's role unless given here.
enum class Role : uint8_t {
  kReplicate,  // Whole on every rank.
  kColumn,     // Dimension 0 is dealt out.
  kRow,        // Dimension 1 is dealt out.
  kRowBias,    // Whole on rank 0, zero (declared padding) on the others.
  kVocab,      // Dimension 0, padded to the vocabulary multiple, is dealt out.
  kExpert,     // Dimension 0 counts experts; parts say how the rest is dealt out.
};

struct Split {
  std::optional<int64_t> dim;       // Of the parameter; default by role.
  std::optional<Expression> count;  // Into so many units that stay whole (heads) ...
  std::optional<Expression> unit;   // ... of so many elements (head_dim, 32, 128); default 1.
  bool replicate = false;           // Fewer units than ranks: several ranks hold the same unit.
  bool pad = false;                 // Units that do not divide: the last ranks get padding.
};

struct Step {
  enum class Op : uint8_t { kTranspose, kSlice, kSplit, kMerge, kTake };
  Op op = Op::kTranspose;
  int64_t dim = 0;
  std::vector<int64_t> order;                        // kTranspose
  std::vector<std::optional<Expression>> arguments;  // kSlice: start, stop, step; kSplit: outer,
                                                     // inner; kTake: index
};

// The dtype of a tensor where it is not the model's.
struct DTypeRule {
  std::optional<Expression> when;
  DType dtype = DType::kF32;
};

struct Alias {
  Pattern name;
  std::optional<Expression> when;
};

// In which order matrices of all experts come: never told from their extents, which may be equal.
enum class Layout : uint8_t { kUndeclared, kOutIn, kInOut };

struct Part {
  std::string name;  // "q"; empty for a parameter's only part.
  std::optional<Expression> when;
  std::optional<Loop> stack;  // One source per value, side by side along dimension 0.
  Pattern source;
  std::vector<Expression> shape;   // Of the source.
  std::optional<DTypeRule> dtype;  // Of the source; default the parameter's.
  std::vector<Step> view;
  Layout layout = Layout::kUndeclared;
  std::optional<Split> split;
  std::vector<Alias> aliases;
  PieceOp op = PieceOp::kCopy;
};

struct ParameterRule {
  Pattern name;
  std::optional<Expression> when;
  Role role = Role::kReplicate;
  std::optional<DTypeRule> dtype;  // Default: the model's.
  int64_t concat = 0;              // Parts lie one after another along this dimension.
  std::optional<int64_t> flatten;  // When all is laid out, this dimension and the next become one.
  std::vector<Part> parts;
};

struct Group {
  std::optional<Loop> loop;
  std::optional<Expression> when;
  std::vector<ParameterRule> parameters;
};

struct ModelFile {
  struct Requirement {
    Expression that;
    std::string message;
  };
  std::vector<std::string> architectures;
  std::string parse_only;  // Why no plan can be made from it yet; empty where one can.
  std::vector<std::string> source_forms;  // The first is the default; empty = there is one alone.
  std::vector<std::pair<std::string, Expression>> definitions;
  std::vector<Requirement> requirements;
  std::vector<Group> groups;
  std::vector<std::string> ignorable;

  // kCorrupt for text that is no JSON, else kInvalidArgument with the path of what is wrong.
  static Result<ModelFile> parse(std::string_view json);
};

// Model files that were embedded when the library was built: (file name, text), sorted by name.
std::vector<std::pair<std::string_view, std::string_view>> embedded_model_files();

}  // namespace changeover::model
