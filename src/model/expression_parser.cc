#include <array>
#include <optional>

#include <fmt/format.h>

#include "base/utf8.h"
#include "model/expression.h"

namespace changeover::model {
namespace {

using Op = Expression::Op;

struct Function {
  std::string_view name;
  Op op;
  int arguments;
};
constexpr std::array<Function, 7> kFunctions = {{{"has", Op::kHas, 1},
                                                 {"get", Op::kGet, 2},
                                                 {"if", Op::kIf, 3},
                                                 {"min", Op::kMin, 2},
                                                 {"max", Op::kMax, 2},
                                                 {"ceil_div", Op::kCeilDivide, 2},
                                                 {"len", Op::kLength, 1}}};
constexpr std::array<std::string_view, 7> kKeywords = {"and",  "or",    "not", "in",
                                                       "true", "false", "null"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool starts_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool in_word(char c) {
  return starts_word(c) || is_digit(c);
}

}  // namespace

// Recursive descent. Every way down goes through Deeper, which counts.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Result<Expression> run() {
    const int root = parse_or();
    skip_space();
    if (root >= 0 && at_ != text_.size()) {
      fail("something that does not belong there");
    }
    if (error_) {
      return *error_;
    }
    expression_.text_ = std::string(text_);
    expression_.root_ = root;
    return std::move(expression_);
  }

 private:
  using Node = Expression::Node;
  using Rule = int (ExpressionParser::*)();
  struct Token {
    std::string_view text;
    Op op;
  };

  int fail(std::string_view what) {
    if (!error_) {
      error_ = Status(Code::kInvalidArgument,
                      fmt::format("expression {}: at byte {}: {}", base::quoted(text_), at_, what));
    }
    return -1;
  }

  int add(Op op, int a = -1, int b = -1, int c = -1) {
    Node node;
    node.op = op;
    node.arguments[0] = a;
    node.arguments[1] = b;
    node.arguments[2] = c;
    return add(std::move(node));
  }

  int add(Node node) {
    if (expression_.nodes_.size() >= kExpressionNodesMax) {
      return fail(fmt::format("more than {} terms", kExpressionNodesMax));
    }
    expression_.nodes_.push_back(std::move(node));
    return static_cast<int>(expression_.nodes_.size()) - 1;
  }

  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
    }
  }

  bool take(std::string_view symbol) {
    skip_space();
    if (!text_.substr(at_).starts_with(symbol)) {
      return false;
    }
    at_ += symbol.size();
    return true;
  }

  // A keyword, not the beginning of a longer word.
  bool take_word(std::string_view word) {
    skip_space();
    if (peek_word() != word) {
      return false;
    }
    at_ += word.size();
    return true;
  }

  std::string_view peek_word() const {
    size_t end = at_;
    if (end < text_.size() && starts_word(text_[end])) {
      while (end < text_.size() && in_word(text_[end])) {
        ++end;
      }
    }
    return text_.substr(at_, end - at_);
  }

  int parse_or() {
    if (++depth_ > kExpressionDepthMax) {
      return fail(fmt::format("nested deeper than {}", kExpressionDepthMax));
    }
    int left = parse_and();
    while (left >= 0 && take_word("or")) {
      const int right = parse_and();
      left = right < 0 ? -1 : add(Op::kOr, left, right);
    }
    --depth_;
    return left;
  }

  int parse_and() {
    int left = parse_not();
    while (left >= 0 && take_word("and")) {
      const int right = parse_not();
      left = right < 0 ? -1 : add(Op::kAnd, left, right);
    }
    return left;
  }

  int parse_not() {
    if (!take_word("not")) {
      return parse_comparison();
    }
    if (++depth_ > kExpressionDepthMax) {
      return fail(fmt::format("nested deeper than {}", kExpressionDepthMax));
    }
    const int operand = parse_not();
    --depth_;
    return operand < 0 ? -1 : add(Op::kNot, operand);
  }

  std::optional<Op> take_comparison() {
    static constexpr std::array<Token, 6> kTokens = {{{"==", Op::kEqual},
                                                      {"!=", Op::kNotEqual},
                                                      {"<=", Op::kLessEqual},
                                                      {">=", Op::kGreaterEqual},
                                                      {"<", Op::kLess},
                                                      {">", Op::kGreater}}};
    for (const Token& token : kTokens) {
      if (take(token.text)) {
        return token.op;
      }
    }
    if (take_word("in")) {
      return Op::kIn;
    }
    const size_t before = at_;
    if (take_word("not")) {
      if (take_word("in")) {
        return Op::kNotIn;
      }
      at_ = before;
    }
    return std::nullopt;
  }

  // Comparisons do not chain: "a < b < c" is refused as trailing text.
  int parse_comparison() {
    const int left = parse_sum();
    if (left < 0) {
      return -1;
    }
    const std::optional<Op> op = take_comparison();
    if (!op) {
      return left;
    }
    const int right = parse_sum();
    return right < 0 ? -1 : add(*op, left, right);
  }

  int parse_sum() {
    int left = parse_product();
    while (left >= 0) {
      const bool plus = take("+");
      if (!plus && !take("-")) {
        break;
      }
      const int right = parse_product();
      left = right < 0 ? -1 : add(plus ? Op::kAdd : Op::kSubtract, left, right);
    }
    return left;
  }

  int parse_product() {
    static constexpr std::array<Token, 4> kTokens = {
        {{"*", Op::kMultiply}, {"//", Op::kFloorDivide}, {"/", Op::kDivide}, {"%", Op::kModulo}}};
    int left = parse_unary();
    while (left >= 0) {
      std::optional<Op> op;
      for (const Token& token : kTokens) {
        if (!op && take(token.text)) {
          op = token.op;
        }
      }
      if (!op) {
        break;
      }
      const int right = parse_unary();
      left = right < 0 ? -1 : add(*op, left, right);
    }
    return left;
  }

  int parse_unary() {
    if (!take("-")) {
      return parse_postfix();
    }
    if (++depth_ > kExpressionDepthMax) {
      return fail(fmt::format("nested deeper than {}", kExpressionDepthMax));
    }
    const int operand = parse_unary();
    --depth_;
    return operand < 0 ? -1 : add(Op::kNegate, operand);
  }

  int parse_postfix() {
    int value = parse_primary();
    while (value >= 0 && take("[")) {
      const int index = parse_or();
      if (index < 0) {
        return -1;
      }
      if (!take("]")) {
        return fail("expected ]");
      }
      value = add(Op::kIndex, value, index);
    }
    return value;
  }

  int parse_primary() {
    skip_space();
    if (at_ == text_.size()) {
      return fail("ends where a value should stand");
    }
    if (take("(")) {
      const int inner = parse_or();
      return inner < 0 ? -1 : take(")") ? inner : fail("expected )");
    }
    if (is_digit(text_[at_])) {
      return parse_integer();
    }
    if (text_[at_] == '\'') {
      return parse_string();
    }
    return starts_word(text_[at_]) ? parse_word() : fail("not a value");
  }

  int parse_integer() {
    Node node;
    int64_t value = 0;
    const size_t start = at_;
    for (; at_ < text_.size() && in_word(text_[at_]); ++at_) {
      if (!is_digit(text_[at_])) {
        return fail("not a digit");
      }
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        return fail("does not fit 64 bits");
      }
    }
    if (text_[start] == '0' && at_ - start > 1) {
      return fail("a leading zero");
    }
    node.literal = Value::of(value);
    return add(std::move(node));
  }

  int parse_string() {
    const size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) {
      return fail("a string without its closing '");
    }
    Node node;
    node.text = std::string(text_.substr(at_ + 1, end - at_ - 1));
    node.literal = Value::of(std::string_view());
    at_ = end + 1;
    return add(std::move(node));
  }

  int parse_word() {
    const std::string_view word = peek_word();
    Node node;
    if (take_word("true") || take_word("false")) {
      node.literal = Value::of(word == "true");
      return add(std::move(node));
    }
    if (take_word("null")) {
      return add(std::move(node));
    }
    for (const std::string_view keyword : kKeywords) {
      if (word == keyword) {
        return fail("a keyword where a value should stand");
      }
    }
    at_ += word.size();
    if (take("(")) {
      return parse_call(word);
    }
    node.op = Op::kName;
    node.text = std::string(word);
    while (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      const std::string_view member = peek_word();
      if (member.empty()) {
        return fail("expected a key after the dot");
      }
      at_ += member.size();
      node.text += '.';
      node.text += member;
    }
    return add(std::move(node));
  }

  int parse_call(std::string_view name) {
    const Function* function = nullptr;
    for (const Function& known : kFunctions) {
      function = known.name == name ? &known : function;
    }
    if (function == nullptr) {
      return fail(fmt::format("no function is called {}", name));
    }
    int arguments[3] = {-1, -1, -1};
    for (int i = 0; i < function->arguments; ++i) {
      if (i > 0 && !take(",")) {
        return fail(fmt::format("{} takes {} arguments", name, function->arguments));
      }
      arguments[i] = parse_or();
      if (arguments[i] < 0) {
        return -1;
      }
    }
    if (!take(")")) {
      return fail(fmt::format("{} takes {} arguments", name, function->arguments));
    }
    const bool wants_name = function->op == Op::kHas || function->op == Op::kGet;
    if (wants_name && expression_.nodes_[arguments[0]].op != Op::kName) {
      return fail(fmt::format("{} wants the name of a config key first", name));
    }
    return add(function->op, arguments[0], arguments[1], arguments[2]);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::optional<Status> error_;
  Expression expression_;
};

Result<Expression> Expression::parse(std::string_view text) {
  if (text.size() > kExpressionBytesMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("expression {}: {} bytes, at most {}", base::quoted(text, 40),
                              text.size(), kExpressionBytesMax));
  }
  return ExpressionParser(text).run();
}

}  // namespace changeover::model
