#include "model/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace changeover::model {
namespace {

using ::testing::HasSubstr;

class ExpressionTest : public ::testing::Test {
 protected:
  // What the expression comes to, as text; or the error's message.
  std::string evaluate(std::string_view text) {
    auto expression = Expression::parse(text);
    if (!expression.ok()) {
      return "parse: " + expression.status().message();
    }
    const auto value = expression->evaluate(scope_);
    return value.ok() ? value->to_text() : "error: " + value.status().message();
  }
  std::string integer(int64_t value) { return "the integer " + std::to_string(value); }

  base::JsonDocument config_ =
      base::JsonDocument::parse(R"({"hidden_size": 576, "num_attention_heads": 9, "none": null,
        "big": 9223372036854775807, "small": -9223372036854775808, "rope": 10000.0, "tie": true,
        "types": ["full", "linear", "full"], "dense": [0, 2], "q": {"method": "fp8", "inner":
        {"n": 7}}, "text": "silu"})")
          .take();
  Scope scope_{config_.root()};
};

TEST_F(ExpressionTest, PrecedenceAndAssociativity) {
  EXPECT_EQ(evaluate("1 + 2 * 3 - 4"), integer(3));
  EXPECT_EQ(evaluate("20 - 4 - 3"), integer(13));
  EXPECT_EQ(evaluate("100 / 10 / 5"), integer(2));
  EXPECT_EQ(evaluate("-(2 + 3) * 2"), integer(-10));
  EXPECT_EQ(evaluate("--3"), integer(3));
  EXPECT_EQ(evaluate("not 1 == 2 and true"), "true");
  EXPECT_EQ(evaluate("false and false or true"), "true");
  EXPECT_EQ(evaluate("true or (false and false)"), "true");
  EXPECT_EQ(evaluate("7 // 2 + -7 // 2"), integer(-1));
  EXPECT_EQ(evaluate("-7 % 3"), integer(2));
  EXPECT_EQ(evaluate("7 % -3"), integer(-2));
  EXPECT_EQ(evaluate("ceil_div(576, 128)"), integer(5));
  EXPECT_EQ(evaluate("min(3, 2) + max(3, 2)"), integer(5));
}

TEST_F(ExpressionTest, NamesReadConfigVariablesAndMembers) {
  EXPECT_EQ(evaluate("hidden_size / num_attention_heads"), integer(64));
  EXPECT_EQ(evaluate("q.inner.n"), integer(7));
  EXPECT_EQ(evaluate("q.method == 'fp8'"), "true");
  EXPECT_EQ(evaluate("types[layer] == 'linear'"),
            "error: expression \"types[layer] == 'linear'\": config.json has no key \"layer\"; add "
            "it");
  scope_.push("layer", Value::of(int64_t{1}));
  EXPECT_EQ(evaluate("types[layer] == 'linear'"), "true");
  EXPECT_EQ(evaluate("layer in dense"), "false");
  EXPECT_EQ(evaluate("layer not in dense and len(dense) == 2"), "true");
  scope_.push("hidden_size", Value::of(int64_t{5}));
  EXPECT_EQ(evaluate("hidden_size"), integer(5));
  scope_.pop();
  EXPECT_EQ(evaluate("hidden_size"), integer(576));
}

TEST_F(ExpressionTest, AbsentAndNullKeys) {
  EXPECT_EQ(evaluate("has(head_dim)"), "false");
  EXPECT_EQ(evaluate("has(none)"), "false");
  EXPECT_EQ(evaluate("has(q.inner.n) and not has(q.outer.n)"), "true");
  EXPECT_EQ(evaluate("get(head_dim, hidden_size / num_attention_heads)"), integer(64));
  EXPECT_EQ(evaluate("get(none, 3)"), integer(3));
  EXPECT_EQ(evaluate("get(hidden_size, 1 / 0)"), integer(576));
  EXPECT_EQ(evaluate("none == null"), "true");
  EXPECT_THAT(evaluate("head_dim"), HasSubstr("config.json has no key \"head_dim\""));
  EXPECT_THAT(evaluate("q.outer.n"), HasSubstr("no key \"q.outer.n\""));
  EXPECT_THAT(evaluate("text.n"), HasSubstr("no key \"text.n\""));
}

TEST_F(ExpressionTest, OnlyWhatIsNeededIsEvaluated) {
  EXPECT_EQ(evaluate("if(tie, 1, 1 / 0)"), integer(1));
  EXPECT_EQ(evaluate("tie or 1 / 0 == 1"), "true");
  EXPECT_EQ(evaluate("not tie and 1 / 0 == 1"), "false");
  EXPECT_EQ(evaluate("has(dense_after) and dense_after > 1"), "false");
}

TEST_F(ExpressionTest, ArithmeticIsChecked) {
  EXPECT_THAT(evaluate("576 / 7"), HasSubstr("576 is not divisible by 7"));
  for (const char* text : {"1 / 0", "1 // 0", "1 % 0", "ceil_div(1, 0)"}) {
    EXPECT_THAT(evaluate(text), HasSubstr("1 divided by zero")) << text;
  }
  for (const char* text : {"big + 1", "small - 1", "big * 2", "-small", "small / -1", "small // -1",
                           "ceil_div(small, -1)"}) {
    EXPECT_THAT(evaluate(text), HasSubstr("does not fit 64 bits")) << text;
  }
  EXPECT_EQ(evaluate("small % -1"), integer(0));
  EXPECT_EQ(evaluate("small % 3"), integer(1));
  EXPECT_EQ(evaluate("7 / -1"), integer(-7));
  EXPECT_THAT(evaluate("9223372036854775808"), HasSubstr("does not fit 64 bits"));
}

TEST_F(ExpressionTest, KindsAreChecked) {
  EXPECT_THAT(evaluate("rope + 1"), HasSubstr("wants integers, got neither"));
  EXPECT_THAT(evaluate("'a' + 1"), HasSubstr("wants integers, got the string \"a\""));
  EXPECT_THAT(evaluate("tie + 1"), HasSubstr("wants integers, got true"));
  EXPECT_THAT(evaluate("1 and true"), HasSubstr("should be true or false, is the integer 1"));
  EXPECT_THAT(evaluate("types == 1"), HasSubstr("cannot be compared"));
  EXPECT_THAT(evaluate("types[3]"), HasSubstr("the list has 3 elements"));
  EXPECT_THAT(evaluate("types[-1]"), HasSubstr("the list has 3 elements"));
  EXPECT_THAT(evaluate("text[0]"), HasSubstr("wants a list"));
  EXPECT_THAT(evaluate("1 in 2"), HasSubstr("wants a list, got the integer 2"));
  EXPECT_EQ(evaluate("1 == '1'"), "false");
  EXPECT_THAT(evaluate("'a' < 'b'"), HasSubstr("wants integers"));
}

TEST_F(ExpressionTest, StrictParser) {
  for (const char* text :
       {"",        " ",      "1 +",          "1 2",      "a b",    "(1",        "1)",
        "a[1",     "a..b",   "a.",           ".a",       "'a",     "a < b < c", "1 == 1 == 1",
        "f(1)",    "min(1)", "min(1, 2, 3)", "min()",    "has(1)", "has(a[0])", "get(1 + 1, 2)",
        "and",     "not",    "a in",         "01",       "1a",     "0x10",      "1.5",
        "a && b",  "a || b", "!a",           "\"a\"",    "a\tb",   "a = b",     "+1",
        "true(1)", "x[]",    "1,2",          "h\xc3\xa9"}) {
    EXPECT_THAT(evaluate(text), HasSubstr("parse: expression")) << text;
  }
  EXPECT_THAT(evaluate("hidden_size $ 2"), HasSubstr("at byte 12"));
}

TEST_F(ExpressionTest, LengthDepthAndWorkHaveCeilings) {
  EXPECT_THAT(evaluate(std::string(1025, ' ')), HasSubstr("1025 bytes, at most 1024"));
  for (const char* open : {"(", "-", "not ", "a[", "min(", "if("}) {
    std::string text;
    while (text.size() + 8 < kExpressionBytesMax) {
      text += open;
    }
    EXPECT_THAT(evaluate(text), HasSubstr("nested deeper than 32")) << open;
  }
  EXPECT_EQ(evaluate("((((((((((1))))))))))"), integer(1));
  std::string wide = "0";
  while (wide.size() + 2 < kExpressionBytesMax) {
    wide += "+1";
  }
  EXPECT_THAT(evaluate(wide), HasSubstr("more than 512 terms"));
  EXPECT_TRUE(scope_.spend(1000).ok());
  EXPECT_FALSE(scope_.spend(UINT64_MAX).ok());
  EXPECT_THAT(evaluate("1"), HasSubstr("too much work"));
}

}  // namespace
}  // namespace changeover::model
