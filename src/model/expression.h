// The small language of model files: integers and truth over config keys and loop variables.
// Grammar: docs/models.md. Text and config are untrusted: length, depth and work have ceilings,
// arithmetic is checked, and a division that leaves a remainder is an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <changeover/status.h>

#include "base/json.h"

namespace changeover::model {

inline constexpr size_t kExpressionBytesMax = 1024;
inline constexpr int kExpressionDepthMax = 32;
inline constexpr size_t kExpressionNodesMax = 512;

// A value borrows its string or list from the expression or the config it came from.
struct Value {
  enum class Kind : uint8_t { kNull, kBool, kInteger, kString, kList, kOther };
  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;
  std::string_view string;
  base::JsonValue list;

  static Value of(bool value);
  static Value of(int64_t value);
  static Value of(std::string_view value);
  static Value of(base::JsonValue json);
  // For messages: "the integer 7", "the string \"x\"".
  std::string to_text() const;
};

// What names mean: variables (loops and `let`, the latest first), then keys of the config.
class Scope {
 public:
  // `config` is an object of a document that outlives the scope.
  explicit Scope(base::JsonValue config);

  void push(std::string name, Value value) { variables_.emplace_back(std::move(name), value); }
  void pop() { variables_.pop_back(); }

  // "a.b" is member b of the config's object a. A null counts as absent.
  bool has(std::string_view name);
  // kInvalidArgument names the key that config.json lacks.
  Result<Value> get(std::string_view name);
  // Every evaluation pays for what it walks; kInvalidArgument when the whole budget is used up.
  Status spend(uint64_t steps);

 private:
  const Value* variable(std::string_view name) const;

  std::unordered_map<std::string_view, base::JsonValue> config_;
  std::vector<std::pair<std::string, Value>> variables_;
  uint64_t steps_left_ = 100'000'000;
};

class Expression {
 public:
  enum class Op : uint8_t {
    kLiteral,
    kName,
    kNot,
    kNegate,
    kOr,
    kAnd,
    kEqual,
    kNotEqual,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kIn,
    kNotIn,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kFloorDivide,
    kModulo,
    kIndex,
    kHas,
    kGet,
    kIf,
    kMin,
    kMax,
    kCeilDivide,
    kLength,
  };
  struct Node {
    Op op = Op::kLiteral;
    Value literal;     // kLiteral without a string
    std::string text;  // kName: the name; a string literal's characters
    int arguments[3] = {-1, -1, -1};
  };

  // kInvalidArgument quotes the text and the position of what it could not read.
  static Result<Expression> parse(std::string_view text);

  const std::string& text() const { return text_; }
  Result<Value> evaluate(Scope& scope) const;
  // As evaluate; another kind is kInvalidArgument that says what it was.
  Result<int64_t> integer(Scope& scope) const;
  Result<bool> boolean(Scope& scope) const;

 private:
  friend class ExpressionParser;
  Result<Value> evaluate(int node, Scope& scope) const;
  Result<Value> evaluate_lazy(const Node& node, Scope& scope) const;
  Result<Value> evaluate_arithmetic(Op op, int64_t a, int64_t b) const;
  Result<Value> evaluate_list(const Node& node, const Value& a, const Value& b, Scope& scope) const;
  Result<bool> truth(int node, Scope& scope) const;
  Status wrong(std::string_view what) const;

  std::string text_;
  std::vector<Node> nodes_;
  int root_ = -1;
};

}  // namespace changeover::model
