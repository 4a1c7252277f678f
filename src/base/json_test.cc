#include "base/json.h"

#include <string>

#include <gtest/gtest.h>

namespace changeover::base {
namespace {

void expect_refused(std::string_view text, std::string_view why, const JsonLimits& limits = {}) {
  const Result<JsonDocument> got = JsonDocument::parse(text, limits);
  ASSERT_FALSE(got.ok()) << text.substr(0, 80);
  EXPECT_EQ(got.status().code(), Code::kCorrupt);
  EXPECT_NE(got.status().message().find(why), std::string::npos) << got.status().message();
}

JsonDocument parse(std::string_view text) {
  Result<JsonDocument> got = JsonDocument::parse(text);
  EXPECT_TRUE(got.ok()) << got.status().to_string();
  return std::move(got).take();
}

TEST(Json, RefusesWhatRfc8259Refuses) {
  for (const std::string_view text : {"",
                                      " ",
                                      "trux",
                                      "01",
                                      "01.e",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "NaN",
                                      "Infinity",
                                      "[1,]",
                                      "[,1]",
                                      "{,}",
                                      "{\"a\":1,}",
                                      "{\"a\"}",
                                      "{a:1}",
                                      "{\"a\":1 \"b\":2}",
                                      "[1 2]",
                                      "[1]]",
                                      "[1] x",
                                      "[1",
                                      "{\"a\":1",
                                      "\"a",
                                      "\"\\q\"",
                                      "\"\\u12g4\"",
                                      "'a'",
                                      "[1]//c",
                                      "nul",
                                      "\"\t\"",
                                      "-",
                                      "--1",
                                      "0x10",
                                      "[1e]",
                                      "tru",
                                      "falsey"}) {
    EXPECT_FALSE(JsonDocument::parse(text).ok()) << text;
  }
  expect_refused("", "empty");
  expect_refused("{\"a\":1}{", "surplus");
}

TEST(Json, RefusesBadText) {
  expect_refused("\xef\xbb\xbf[]", "byte order mark");
  expect_refused("[\"\xff\"]", "UTF-8");
  expect_refused("[\"\xc0\x80\"]", "UTF-8");
  expect_refused("[\"\xed\xa0\x80\"]", "UTF-8");
  EXPECT_FALSE(JsonDocument::parse("[\"\\ud800\"]").ok());
  EXPECT_FALSE(JsonDocument::parse("[\"\\udc00\"]").ok());
  EXPECT_FALSE(JsonDocument::parse("[\"\\ud800\\ud800\"]").ok());
  EXPECT_FALSE(JsonDocument::parse("{\"\\udfff\":1}").ok());
  EXPECT_FALSE(JsonDocument::parse("[12345678901234567890123]").ok());
  EXPECT_FALSE(JsonDocument::parse("[1e999]").ok());
}

TEST(Json, RefusesAKeyTwiceComparedUnescaped) {
  expect_refused(R"({"a":1,"b":2,"a":3})", R"(key "a" stands twice)");
  expect_refused(R"({"a":1,"\u0061":3})", R"(key "a" stands twice)");
  expect_refused(R"([{"x":{"k":[],"z":1,"k":[]}}])", R"(key "k" stands twice)");
  expect_refused(R"({"":1,"":3})", R"(key "" stands twice)");
  EXPECT_TRUE(JsonDocument::parse(R"({"a":{"a":1},"b":{"a":1}})").ok());
}

TEST(Json, RefusesNulInAKey) {
  expect_refused(R"({"a\u0000b":1})", R"("a\x00b" holds a NUL)");
  EXPECT_TRUE(JsonDocument::parse(R"({"a":"\u0000"})").ok());
}

TEST(Json, DepthAndSizeHaveCeilings) {
  const auto nest = [](size_t depth) {
    return std::string(depth, '[') + "1" + std::string(depth, ']');
  };
  EXPECT_TRUE(JsonDocument::parse(nest(8), {.depth_max = 8}).ok());
  expect_refused(nest(9), "nested too deep", {.depth_max = 8});
  EXPECT_TRUE(JsonDocument::parse(nest(64)).ok());
  expect_refused(nest(65), "nested too deep");
  expect_refused(std::string(1'000'000, '['), "");
  EXPECT_TRUE(JsonDocument::parse("[1,2]", {.bytes_max = 5}).ok());
  expect_refused("[1,2]", "it has 5 bytes, the limit is 4", {.bytes_max = 4});
}

TEST(Json, IntegersAreIntegerTokens) {
  const JsonDocument document =
      parse("[0,-1,9223372036854775807,-9223372036854775808,9223372036854775808,1.0,1e2,-0]");
  std::vector<std::optional<int64_t>> got;
  for (const JsonValue value : document.root().elements()) {
    got.push_back(value.integer());
  }
  EXPECT_EQ(got, (std::vector<std::optional<int64_t>>{0, -1, INT64_MAX, INT64_MIN, {}, {}, {}, 0}));
  EXPECT_EQ(document.root().size(), 8u);
  auto it = document.root().elements().begin();
  EXPECT_TRUE((*it).is(JsonKind::kInteger));
  for (int i = 0; i < 5; ++i) {
    ++it;
  }
  EXPECT_TRUE((*it).is(JsonKind::kFloat));
  EXPECT_EQ((*it).number(), 1.0);
}

TEST(Json, WalksObjectsInOrder) {
  std::string text =
      R"({"z":[1,[2,{"q":3}],"s"],"a":{"b":null,"c":true},"e\u00e9":"\ud83d\ude00"})";
  const JsonDocument document = parse(text);
  text.assign(text.size(), '#');  // The document holds nothing of the text.
  std::vector<std::string> keys;
  for (const JsonMember member : document.root().members()) {
    keys.emplace_back(member.key);
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"z", "a", "e\xc3\xa9"}));
  EXPECT_EQ(document.root().find("e\xc3\xa9")->string(), "\xf0\x9f\x98\x80");
  EXPECT_EQ(document.root().find("z")->size(), 3u);
  EXPECT_EQ(document.root().find("a")->find("c")->boolean(), true);
  EXPECT_TRUE(document.root().find("a")->find("b")->is(JsonKind::kNull));
  EXPECT_FALSE(document.root().find("nothing").has_value());
  EXPECT_FALSE(document.root().find("z")->find("q").has_value());
  EXPECT_EQ(
      document.root().find("z")->members().begin() != document.root().find("z")->members().end(),
      false);
  const JsonDocument scalar = parse(" 5 ");
  EXPECT_EQ(scalar.root().integer(), 5);
  EXPECT_EQ(scalar.root().size(), 0u);
}

}  // namespace
}  // namespace changeover::base
