#include "model/expression.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

#include "base/utf8.h"

namespace changeover::model {
namespace {

bool equal(const Value& a, const Value& b) {
  if (a.kind != b.kind) {
    return false;
  }
  switch (a.kind) {
    case Value::Kind::kNull:
      return true;
    case Value::Kind::kBool:
      return a.boolean == b.boolean;
    case Value::Kind::kInteger:
      return a.integer == b.integer;
    case Value::Kind::kString:
      return a.string == b.string;
    case Value::Kind::kList:
    case Value::Kind::kOther:
      return false;
  }
  return false;
}

bool is_scalar(const Value& value) {
  return value.kind != Value::Kind::kList && value.kind != Value::Kind::kOther;
}

// Rounds towards minus infinity, as the remainder with the divisor's sign needs it.
int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

}  // namespace

Value Value::of(bool value) {
  Value result;
  result.kind = Kind::kBool;
  result.boolean = value;
  return result;
}

Value Value::of(int64_t value) {
  Value result;
  result.kind = Kind::kInteger;
  result.integer = value;
  return result;
}

Value Value::of(std::string_view value) {
  Value result;
  result.kind = Kind::kString;
  result.string = value;
  return result;
}

Value Value::of(base::JsonValue json) {
  if (const auto integer = json.integer()) {
    return of(*integer);
  }
  if (const auto boolean = json.boolean()) {
    return of(*boolean);
  }
  if (const auto string = json.string()) {
    return of(*string);
  }
  Value result;
  if (json.is(base::JsonKind::kNull)) {
    return result;
  }
  result.kind = json.is(base::JsonKind::kArray) ? Kind::kList : Kind::kOther;
  result.list = json;
  return result;
}

std::string Value::to_text() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return boolean ? "true" : "false";
    case Kind::kInteger:
      return fmt::format("the integer {}", integer);
    case Kind::kString:
      return fmt::format("the string {}", base::quoted(string));
    case Kind::kList:
      return "a list";
    case Kind::kOther:
      return "neither an integer, a truth value, a string nor a list";
  }
  return "";
}

const Value* Scope::variable(std::string_view name) const {
  const auto found = std::find_if(variables_.rbegin(), variables_.rend(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == variables_.rend() ? nullptr : &found->second;
}

Scope::Scope(base::JsonValue config) {
  for (const base::JsonMember member : config.members()) {
    config_.emplace(member.key, member.value);
  }
}

bool Scope::has(std::string_view name) {
  const Result<Value> value = get(name);
  return value.ok() && value->kind != Value::Kind::kNull;
}

Result<Value> Scope::get(std::string_view name) {
  if (const Value* value = variable(name)) {
    return *value;
  }
  const size_t dot = name.find('.');
  const auto found = config_.find(name.substr(0, dot));
  std::optional<base::JsonValue> at;
  if (found != config_.end()) {
    at = found->second;
  }
  for (size_t from = dot; at && from != std::string_view::npos;) {
    CHANGEOVER_TRY(spend(at->size()));
    const size_t next = name.find('.', from + 1);
    at = at->find(name.substr(from + 1, next - from - 1));
    from = next;
  }
  if (!at) {
    return Status(Code::kInvalidArgument,
                  fmt::format("config.json has no key \"{}\"; add it", name));
  }
  return Value::of(*at);
}

Status Scope::spend(uint64_t steps) {
  if (steps > steps_left_) {
    steps_left_ = 0;
    return {Code::kInvalidArgument, "this model file and config need too much work to evaluate"};
  }
  steps_left_ -= steps;
  return {};
}

Status Expression::wrong(std::string_view what) const {
  return {Code::kInvalidArgument, fmt::format("expression {}: {}", base::quoted(text_), what)};
}

Result<Value> Expression::evaluate(Scope& scope) const {
  return evaluate(root_, scope);
}

Result<int64_t> Expression::integer(Scope& scope) const {
  CHANGEOVER_TRY_ASSIGN(const Value value, evaluate(scope));
  if (value.kind != Value::Kind::kInteger) {
    return wrong(fmt::format("should be an integer, is {}", value.to_text()));
  }
  return value.integer;
}

Result<bool> Expression::boolean(Scope& scope) const {
  return truth(root_, scope);
}

Result<bool> Expression::truth(int node, Scope& scope) const {
  CHANGEOVER_TRY_ASSIGN(const Value value, evaluate(node, scope));
  if (value.kind != Value::Kind::kBool) {
    return wrong(fmt::format("should be true or false, is {}", value.to_text()));
  }
  return value.boolean;
}

Result<Value> Expression::evaluate(int index, Scope& scope) const {
  const Node& node = nodes_[index];
  CHANGEOVER_TRY(scope.spend(1));
  switch (node.op) {
    case Op::kLiteral:
      return node.literal.kind == Value::Kind::kString ? Value::of(std::string_view(node.text))
                                                       : node.literal;
    case Op::kName: {
      Result<Value> value = scope.get(node.text);
      return value.ok() ? value : wrong(value.status().message());
    }
    case Op::kNot:
    case Op::kOr:
    case Op::kAnd:
    case Op::kHas:
    case Op::kGet:
    case Op::kIf:
      return evaluate_lazy(node, scope);
    default:
      break;
  }
  CHANGEOVER_TRY_ASSIGN(const Value a, evaluate(node.arguments[0], scope));
  Value b;
  if (node.arguments[1] >= 0) {
    CHANGEOVER_TRY_ASSIGN(b, evaluate(node.arguments[1], scope));
  }
  if (node.op == Op::kEqual || node.op == Op::kNotEqual) {
    if (!is_scalar(a) || !is_scalar(b)) {
      return wrong("compares what cannot be compared");
    }
    return Value::of(equal(a, b) == (node.op == Op::kEqual));
  }
  if (node.op == Op::kIn || node.op == Op::kNotIn || node.op == Op::kIndex ||
      node.op == Op::kLength) {
    return evaluate_list(node, a, b, scope);
  }
  if (node.op == Op::kNegate) {
    b = Value::of(int64_t{0});
  }
  for (const Value* operand : std::initializer_list<const Value*>{&a, &b}) {
    if (operand->kind != Value::Kind::kInteger) {
      return wrong(fmt::format("wants integers, got {}", operand->to_text()));
    }
  }
  return node.op == Op::kNegate ? evaluate_arithmetic(Op::kSubtract, 0, a.integer)
                                : evaluate_arithmetic(node.op, a.integer, b.integer);
}

// What does not evaluate all of its arguments.
Result<Value> Expression::evaluate_lazy(const Node& node, Scope& scope) const {
  if (node.op == Op::kHas || node.op == Op::kGet) {
    const std::string& name = nodes_[node.arguments[0]].text;
    const bool there = scope.has(name);
    if (node.op == Op::kHas) {
      return Value::of(there);
    }
    return evaluate(there ? node.arguments[0] : node.arguments[1], scope);
  }
  CHANGEOVER_TRY_ASSIGN(const bool first, truth(node.arguments[0], scope));
  if (node.op == Op::kIf) {
    return evaluate(first ? node.arguments[1] : node.arguments[2], scope);
  }
  if (node.op == Op::kNot) {
    return Value::of(!first);
  }
  if (first == (node.op == Op::kOr)) {
    return Value::of(first);
  }
  CHANGEOVER_TRY_ASSIGN(const bool second, truth(node.arguments[1], scope));
  return Value::of(second);
}

Result<Value> Expression::evaluate_list(const Node& node, const Value& a, const Value& b,
                                        Scope& scope) const {
  const Value& list = node.op == Op::kIn || node.op == Op::kNotIn ? b : a;
  if (list.kind != Value::Kind::kList) {
    return wrong(fmt::format("wants a list, got {}", list.to_text()));
  }
  const auto size = static_cast<int64_t>(list.list.size());
  CHANGEOVER_TRY(scope.spend(static_cast<uint64_t>(size)));
  if (node.op == Op::kLength) {
    return Value::of(size);
  }
  if (node.op == Op::kIndex) {
    if (b.kind != Value::Kind::kInteger || b.integer < 0 || b.integer >= size) {
      return wrong(fmt::format("index is {}, the list has {} elements", b.to_text(), size));
    }
    int64_t at = 0;
    for (const base::JsonValue element : list.list.elements()) {
      if (at++ == b.integer) {
        return Value::of(element);
      }
    }
  }
  bool found = false;
  for (const base::JsonValue element : list.list.elements()) {
    found = found || equal(a, Value::of(element));
  }
  return Value::of(found == (node.op == Op::kIn));
}

Result<Value> Expression::evaluate_arithmetic(Op op, int64_t a, int64_t b) const {
  int64_t result = 0;
  bool overflow = false;
  const bool divides =
      op == Op::kDivide || op == Op::kFloorDivide || op == Op::kModulo || op == Op::kCeilDivide;
  if (divides && b == 0) {
    return wrong(fmt::format("{} divided by zero", a));
  }
  if (divides && b == -1) {  // INT64_MIN / -1 does not fit; no other divisor overflows.
    overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
    result = op == Op::kModulo ? 0 : result;
    overflow = overflow && op != Op::kModulo;
    return overflow ? Result<Value>(wrong("does not fit 64 bits")) : Value::of(result);
  }
  switch (op) {
    case Op::kLess:
      return Value::of(a < b);
    case Op::kLessEqual:
      return Value::of(a <= b);
    case Op::kGreater:
      return Value::of(a > b);
    case Op::kGreaterEqual:
      return Value::of(a >= b);
    case Op::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Op::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::kDivide:
      if (a % b != 0) {
        return wrong(fmt::format("{} is not divisible by {}", a, b));
      }
      result = a / b;
      break;
    case Op::kFloorDivide:
      result = floor_divide(a, b);
      break;
    case Op::kModulo:
      result = a % b;
      result += result != 0 && ((result < 0) != (b < 0)) ? b : 0;
      break;
    case Op::kCeilDivide:
      result = a % b != 0 ? floor_divide(a, b) + 1 : a / b;
      break;
    case Op::kMin:
      result = std::min(a, b);
      break;
    case Op::kMax:
      result = std::max(a, b);
      break;
    default:
      return wrong("has an operator of another kind");
  }
  return overflow ? Result<Value>(wrong("does not fit 64 bits")) : Value::of(result);
}

}  // namespace changeover::model
