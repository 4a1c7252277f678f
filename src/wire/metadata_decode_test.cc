#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/metadata.h"

namespace changeover::wire {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

Result<std::vector<Entry>> decode(std::string_view text, uint64_t payload_bytes) {
  return decode_metadata(std::as_bytes(std::span(text)), payload_bytes);
}

void expect_refused(std::string_view text, uint64_t payload_bytes, std::string_view why) {
  const auto got = decode(text, payload_bytes);
  ASSERT_FALSE(got.ok()) << text;
  EXPECT_EQ(got.status().code(), Code::kCorrupt);
  EXPECT_NE(got.status().message().find(why), std::string::npos)
      << got.status().message() << "\nwanted: " << why;
}

// One tensor "w" of 4 bytes, with one of its values replaced.
std::string one(std::string_view key = "", std::string_view value = "") {
  std::string text = "[{";
  for (const auto& [name, standard] :
       std::vector<std::pair<std::string_view, std::string_view>>{{"name", "\"w\""},
                                                                  {"shape", "[2]"},
                                                                  {"dtype", "\"int16\""},
                                                                  {"offset", "0"},
                                                                  {"nbytes", "4"}}) {
    text += text.size() > 2 ? "," : "";
    text += "\"" + std::string(name) + "\":" + std::string(name == key ? value : standard);
  }
  return text + "}]";
}

TEST(MetadataDecode, W2_TakesAnyKeyOrderWhiteSpaceAndRawUtf8) {
  const auto got = decode(
      " [ { \"nbytes\" : 4 ,\n\t\"dtype\":\"int16\", \"shape\" : [ 2 ],\"offset\":0,"
      "\"name\":\"mod\xc3\xa8le\" } ] ",
      4);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(*got, (std::vector<Entry>{{{"mod\xc3\xa8le", DType::kI16, {2}}, 0, 4}}));
}

TEST(MetadataDecode, W6_IgnoresKeysItDoesNotKnow) {
  std::string text = one();
  text.insert(2, R"("checksum":"00","deep":[0,{"deep":[1.5,null]}],)");
  EXPECT_TRUE(decode(text, 4).ok());
  // A plain reader does not know those of the extensions either.
  text.insert(2, R"("xxh3":"00","slice":[0,{"deep":[1.5,null]}],)");
  EXPECT_TRUE(decode_metadata(std::as_bytes(std::span(text)), 4, {}).ok());
  EXPECT_FALSE(decode(text, 4).ok());
}

TEST(MetadataDecode, W7_StrictJson) {
  EXPECT_TRUE(decode(one(), 4).ok());
  expect_refused("", 0, "metadata: not valid JSON: the text is empty");
  expect_refused("{}", 0, "it is an object, it must be an array");
  expect_refused("null", 0, "it is null");
  expect_refused("[1]", 0, "entry 0: it is an integer, it must be an object");
  expect_refused("[{}]x", 0, "not valid JSON");
  expect_refused(R"([{"name":"w","name":"v"}])", 4, R"(key "name" stands twice)");
  expect_refused(R"([{"name":"w","n\u0061me":"v"}])", 4, R"(key "name" stands twice)");
  std::string nested = one();
  nested.insert(2, R"("other":{"a":1,"a":2},)");
  expect_refused(nested, 4, R"(key "a" stands twice)");
}

TEST(MetadataDecode, W7_EveryKeyIsThereAndOfItsKind) {
  for (const std::string key : {"name", "shape", "dtype", "offset", "nbytes"}) {
    std::string text = one();
    text.replace(text.find("\"" + key + "\""), key.size() + 2, "\"other\"");
    expect_refused(text, 4, "the key \"" + key + "\" is missing");
    expect_refused(one(key, "{}"), 4, "its " + key + " is an object, it must be");
    expect_refused(one(key, "null"), 4, "its " + key + " is null");
  }
}

TEST(MetadataDecode, W7_Names) {
  expect_refused(one("name", "\"\""), 4, "entry 0: a tensor's name is empty");
  expect_refused(one("name", R"("\ud800")"), 4, "surrogate");
  expect_refused(one("name", "\"\xff\""), 4, "UTF-8");
  expect_refused(one("name", R"("a\u0000")"), 4, "holds a NUL");
  EXPECT_TRUE(decode(one("name", "\"" + std::string(4096, 'x') + "\""), 4).ok());
  expect_refused(one("name", "\"" + std::string(4097, 'x') + "\""), 4, "4097 bytes, at most 4096");
}

TEST(MetadataDecode, W7_CaseB45_Dimensions) {
  expect_refused(one("shape", "[-1,4]"), 4, "tensor \"w\": dimension 0 is -1");
  expect_refused(one("shape", "[1.5]"), 4, "dimension 0 is a number with a fraction");
  expect_refused(one("shape", "[2.0]"), 4, "dimension 0 is a number with a fraction");
  expect_refused(one("shape", "[1e300]"), 4, "dimension 0 is a number with a fraction");
  expect_refused(one("shape", "[2,\"1\"]"), 4, "dimension 1 is a string");
  expect_refused(one("shape", "[true]"), 4, "dimension 0 is a boolean");
  expect_refused(one("shape", "[9223372036854775808]"), 4, "dimension 0 does not fit 64 bits");
  expect_refused(one("shape", "[4294967296,4294967296]"), 4, "overflows");
  std::string ones = "[1";
  for (int i = 1; i < 64; ++i) {
    ones += ",1";
  }
  std::string one_element = one("shape", ones + "]");
  one_element.replace(one_element.find("\"nbytes\":4"), 10, "\"nbytes\":2");
  EXPECT_TRUE(decode(one_element, 2).ok());
  expect_refused(one("shape", ones + ",1]"), 4, "65 dimensions, at most 64");
}

TEST(MetadataDecode, W7_SizesAndRanges) {
  expect_refused(one("nbytes", "3"), 4, "its nbytes is 3, but int16 [2] has 4");
  expect_refused(one("nbytes", "-4"), 4, "its nbytes is -4");
  expect_refused(one("nbytes", "4.0"), 4, "it must be an integer");
  expect_refused(one("offset", "-1"), 4, "its offset is -1");
  expect_refused(one("offset", "1"), 4, "1 + 4 end after the payload of 4");
  expect_refused(one("offset", "9223372036854775807"), 4, "end after the payload of 4");
  expect_refused(one("offset", "18446744073709551615"), 4, "does not fit 64 bits");
  expect_refused(one(), 3, "end after the payload of 3");
  expect_refused(one(), 5, "the payload has 5 bytes, its tensors cover 4");
  expect_refused(one("offset", "1"), 5, "a gap of 1 bytes before its offset 1");
  expect_refused("[]", 1, "cover 0");
}

TEST(MetadataDecode, W7_DTypes) {
  expect_refused(one("dtype", "\"torch.int16\""), 4, "dtype \"torch.int16\" is unknown");
  expect_refused(one("dtype", "\"BF16\""), 4, "dtype \"BF16\" is unknown");
  expect_refused(one("dtype", "\"\""), 4, "dtype \"\" is unknown");
}

std::string two(std::string_view second_name, uint64_t second_offset) {
  return R"([{"name":"a","shape":[4],"dtype":"uint8","offset":0,"nbytes":4},{"name":")" +
         std::string(second_name) + R"(","shape":[4],"dtype":"uint8","offset":)" +
         std::to_string(second_offset) + R"(,"nbytes":4}])";
}

TEST(MetadataDecode, W7_NoNameTwiceNoOverlapNoGap) {
  EXPECT_TRUE(decode(two("b", 4), 8).ok());
  expect_refused(two("a", 4), 8, "tensor \"a\": the name comes twice");
  expect_refused(two(R"(\u0061)", 4), 8, "tensor \"a\": the name comes twice");
  expect_refused(two("b", 3), 7, "tensor \"b\": its bytes from 3 overlap tensor \"a\"");
  expect_refused(two("b", 0), 4, "overlap");
  expect_refused(two("b", 5), 9, "tensor \"b\": a gap of 1 bytes");
  // The order of the metadata need not be that of the payload.
  std::string swapped = two("b", 0);
  swapped.replace(swapped.find("\"offset\":0"), 10, "\"offset\":4");
  EXPECT_TRUE(decode(swapped, 8).ok());
}

TEST(MetadataDecode, W9_CaseB46_ZeroSizeAndScalars) {
  const auto got = decode(R"([{"name":"z","shape":[0],"dtype":"float32","offset":0,"nbytes":0},)"
                          R"({"name":"s","shape":[],"dtype":"float32","offset":0,"nbytes":4},)"
                          R"({"name":"y","shape":[3,0],"dtype":"float32","offset":4,"nbytes":0}])",
                          4);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ((*got)[2].spec.shape, (std::vector<int64_t>{3, 0}));
  EXPECT_TRUE(decode(R"([{"name":"z","shape":[0],"dtype":"int8","offset":0,"nbytes":0}])", 0).ok());
  EXPECT_TRUE(decode("[]", 0).ok());
  expect_refused(R"([{"name":"z","shape":[0],"dtype":"int8","offset":1,"nbytes":0}])", 0,
                 "end after the payload");
  expect_refused(R"([{"name":"s","shape":[],"dtype":"int8","offset":0,"nbytes":0}])", 0,
                 "its nbytes is 0, but int8 [] has 1");
}

// How far decoding raises the peak resident memory, as a multiple of the text's size. In a child,
// so that memory freed before (and kept by the allocator) does not hide it.
double decode_cost(const std::string& text) {
  const auto resident_max_bytes = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024;
  };
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const double before = resident_max_bytes();
    const auto got = decode(text, 1);
    const double cost = got.ok() ? -1 : (resident_max_bytes() - before) / text.size();
    _exit(write(ends[1], &cost, sizeof(cost)) == sizeof(cost) ? 0 : 1);
  }
  double cost = 1e9;
  EXPECT_EQ(read(ends[0], &cost, sizeof(cost)), static_cast<ssize_t>(sizeof(cost)));
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return cost;
}

std::string repeat(std::string_view head, std::string_view unit, size_t bytes,
                   std::string_view tail) {
  std::string text(head);
  while (text.size() + unit.size() + tail.size() < bytes) {
    text += unit;
  }
  return text + std::string(tail);
}

TEST(MetadataDecode, W7_AHostileDocumentCostsAtMostSixteenTimesItsSize) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer's own memory would be counted";
  }
  constexpr size_t kBytes = 8 << 20;
  std::string names = "[";
  for (size_t i = 0; names.size() < kBytes; ++i) {
    names += R"({"name":")" + std::to_string(i) +
             R"(","shape":[],"dtype":"int8","offset":0,"nbytes":1},)";
  }
  names.back() = ']';
  std::string shape = "[0";
  for (int i = 1; i < 64; ++i) {
    shape += ",0";
  }
  std::string shapes = "[";
  for (size_t i = 0; shapes.size() < kBytes; ++i) {
    shapes += R"({"name":")" + std::to_string(i) + R"(","shape":)" + shape +
              R"(],"dtype":"int8","offset":0,"nbytes":0},)";
  }
  shapes.back() = ']';
  std::string keys = "[{";
  for (size_t i = 0; keys.size() < kBytes; ++i) {
    keys += '"' + std::to_string(i) + "\":0,";
  }
  keys += R"("0":0}])";
  const std::pair<const char*, std::string> documents[] = {
      {"numbers", repeat("[", "0,", kBytes, "0]")},
      {"arrays", repeat("[", "[],", kBytes, "[]]")},
      {"empty strings", repeat("[", "\"\",", kBytes, "\"\"]")},
      {"one string", repeat("[\"", "a", kBytes, "\"]")},
      {"escapes", repeat("[\"", "\\n", kBytes, "\"]")},
      {"open brackets", repeat("", "[", kBytes, "")},
      {"numbers after a tensor",
       repeat(R"([{"name":"w","shape":[],"dtype":"int8","offset":0,"nbytes":1},)", "0,", kBytes,
              "0]")},
      {"keys", keys},
      {"tensors", names},
      {"tensors of 64 dimensions", shapes},
  };
  for (const auto& [what, text] : documents) {
    const double cost = decode_cost(text);
    EXPECT_GE(cost, 0) << what << " was accepted";
    EXPECT_LE(cost, 16) << what;
    RecordProperty(what, std::to_string(cost));
  }
}

}  // namespace
}  // namespace changeover::wire
