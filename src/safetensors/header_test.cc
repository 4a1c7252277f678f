#include "safetensors/header.h"

#include <string>

#include <gtest/gtest.h>

namespace changeover::safetensors {
namespace {

std::string length_prefix(uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text += static_cast<char>(length >> (8 * i));
  }
  return text;
}

std::string file(const std::string& json, size_t data_bytes) {
  return length_prefix(json.size()) + json + std::string(data_bytes, 'd');
}

// A file with one tensor "a".
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t data_bytes) {
  return file(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
                  offsets + "}}",
              data_bytes);
}

Result<Header> parse(const std::string& text, const SafetensorsLimits& limits = {}) {
  return parse_header(std::as_bytes(std::span(text)), limits);
}

void expect_accepted(const std::string& text) {
  const auto got = parse(text);
  EXPECT_TRUE(got.ok()) << got.status().to_string() << "\n" << text;
}

void expect_refused(const std::string& text, std::string_view why,
                    const SafetensorsLimits& limits = {}) {
  const auto got = parse(text, limits);
  ASSERT_FALSE(got.ok()) << text.substr(0, 200);
  EXPECT_EQ(got.status().code(), Code::kCorrupt);
  EXPECT_NE(got.status().message().find(why), std::string::npos)
      << got.status().message() << "\nwanted: " << why;
}

TEST(SafetensorsHeader, CaseB45_Shapes) {
  expect_refused(one("F32", "[4294967296,4294967296]", "[0,0]", 0),
                 "tensor \"a\": the number of elements of [4294967296,4294967296] overflows");
  expect_refused(one("F32", "[-1,4]", "[0,0]", 0), "tensor \"a\": dimension 0 is -1");
  expect_refused(one("F32", "[1.5]", "[0,4]", 4), "tensor \"a\": dimension 0 is a number with a f");
  expect_refused(one("F32", "[1e300]", "[0,4]", 4), "dimension 0 is a number with a fraction");
  expect_refused(one("F32", "[18446744073709551616]", "[0,4]", 4), "not valid JSON");
  expect_refused(one("F32", "[18446744073709551615]", "[0,4]", 4), "does not fit 64 bits");
  std::string seventy = "[1";
  for (int i = 1; i < 70; ++i) {
    seventy += ",1";
  }
  expect_refused(one("F32", seventy + "]", "[0,4]", 4), "70 dimensions, at most 64");
  expect_refused(one("F64", "[2305843009213693952]", "[0,0]", 0), "bytes of float64");
  const auto empty = parse(one("F32", "[0,4]", "[0,0]", 0));
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->tensors[0].bytes, 0u);
}

TEST(SafetensorsHeader, CaseB46_ZeroSizeTensorsAndScalars) {
  const auto got = parse(file(R"({"z":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                              R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                              R"("y1":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},)"
                              R"("y2":{"dtype":"F32","shape":[3,0],"data_offsets":[8,8]},)"
                              R"("s":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
                              R"("e":{"dtype":"U8","shape":[0],"data_offsets":[12,12]}})",
                              12));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  std::string order;
  for (const Tensor& tensor : got->tensors) {
    order += tensor.spec.name + " ";
  }
  EXPECT_EQ(order, "z w y1 y2 s e ");
  EXPECT_EQ(*element_count(got->tensors[4].spec.shape), 1);
  expect_refused(one("F32", "[]", "[0,0]", 0), "span 0 bytes, but float32 [] has 4");
  expect_refused(one("F32", "[1]", "[0,0]", 0), "span 0 bytes, but float32 [1] has 4");
  expect_refused(file(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("z":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                      4),
                 "tensor \"z\": its data from offset 2 overlaps");
}

TEST(SafetensorsHeader, CaseB47_TheLength) {
  expect_refused("", "the file has 0 bytes");
  expect_refused("1234567", "the file has 7 bytes");
  expect_refused(length_prefix(uint64_t{1} << 63) + "{}", "is 9223372036854775808 bytes, at most");
  expect_refused(length_prefix(UINT64_MAX) + "{}", "18446744073709551615");
  expect_refused(length_prefix(3) + "{}", "is 3 bytes, the file has only 2 after it");
  expect_refused(length_prefix(100'000'001) + "{}", "is 100000001 bytes, at most 100000000");
  expect_refused(length_prefix(0), "does not start with '{'");
  const std::string small = file("{}  ", 0);
  EXPECT_TRUE(parse(small, {.header_bytes_max = 4}).ok());
  expect_refused(small, "at most 3 are allowed", {.header_bytes_max = 3});
}

TEST(SafetensorsHeader, CaseB47_OtherFilesAreNamed) {
  const std::string tail(64, '\x14');
  expect_refused("PK\x03\x04\x14\x08" + tail, "this is a zip archive, probably a torch .pt");
  expect_refused("\x80\x02}q\x01X\x04" + tail, "this is a Python pickle");
  expect_refused("GGUF\x03" + tail, "GGUF");
  expect_refused("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer");
  expect_refused("<!DOCTYPE html><html>" + tail, "web page");
  // A sound file whose length happens to start like a pickle is read.
  std::string json = "{}";
  json.append(0x0280 - json.size(), ' ');
  expect_accepted(file(json, 0));
}

TEST(SafetensorsHeader, CaseB47_StrictJson) {
  expect_refused(file(" {}", 0), "does not start with '{'");
  expect_refused(file("[]", 0), "does not start with '{'");
  expect_refused(file("{},", 0), "not valid JSON");
  expect_refused(file("{\"a\":1,}", 0), "not valid JSON");
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_refused(file(R"({"a":)" + tensor + R"(,"a":)" + tensor + "}", 1),
                 R"(key "a" stands twice)");
  expect_refused(file(R"({"a":)" + tensor + R"(,"\u0061":)" + tensor + "}", 1),
                 R"(key "a" stands twice)");
  expect_refused(file(R"({"":)" + tensor + "}", 1), "name is empty");
  expect_refused(file(R"({"a\u0000":)" + tensor + "}", 1), "NUL");
  expect_refused(file(R"({"a":1})", 0), "tensor \"a\": its entry is an integer");
  expect_refused(file(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1), "its dtype must be");
  expect_refused(file(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1), "it has no shape");
  expect_refused(file(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "its data_offsets must be");
}

TEST(SafetensorsHeader, CaseB47_Metadata) {
  const auto got = parse(file(R"({"__metadata__":{"format":"pt","k":"\u00e9"}})", 0));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_TRUE(got->tensors.empty());
  EXPECT_EQ(got->metadata,
            (std::map<std::string, std::string>{{"format", "pt"}, {"k", "\xc3\xa9"}}));
  expect_accepted(file("{}", 0));
  expect_refused(file(R"({"__metadata__":{"a":1}})", 0), "__metadata__ \"a\" is an integer");
  expect_refused(file(R"({"__metadata__":null})", 0), "__metadata__ is null");
}

std::string two(const std::string& second_offsets, size_t data_bytes) {
  return file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
              R"("b":{"dtype":"U8","shape":[4],"data_offsets":)" +
                  second_offsets + "}}",
              data_bytes);
}

TEST(SafetensorsHeader, CaseB47_NoGapsNoOverlapsNothingLeftOver) {
  expect_accepted(two("[4,8]", 8));
  expect_refused(two("[3,7]", 7), "tensor \"b\": its data from offset 3 overlaps");
  expect_refused(two("[5,9]", 9), "tensor \"b\": a gap of 1 bytes");
  expect_refused(two("[4,8]", 9), "1 bytes are left over after the last tensor");
  expect_refused(two("[4,8]", 7), "tensor \"b\": its data ends at 8, the file holds only 7");
  expect_refused(two("[8,4]", 8), "[8,4] end before they begin");
  expect_refused(two("[-4,0]", 8), "a data offset is -4");
  expect_refused(two("[4,8.0]", 8), "a data offset is a number with a fraction");
  expect_refused(two("[4]", 8), "array of two integers");
  expect_refused(two("[4,8,12]", 8), "array of two integers");
  expect_refused(two("[9223372036854775803,9223372036854775807]", 8), "a gap of");
}

TEST(SafetensorsHeader, CaseB49_DTypes) {
  EXPECT_EQ(parse(one("F8_E8M0", "[4]", "[0,4]", 4))->tensors[0].bytes, 4u);
  EXPECT_EQ(parse(one("F8_E4M3", "[2,3]", "[0,6]", 6))->tensors[0].bytes, 6u);
  EXPECT_EQ(parse(one("F4", "[4]", "[0,2]", 2))->tensors[0].bytes, 2u);
  EXPECT_EQ(parse(one("F6_E2M3", "[4]", "[0,3]", 3))->tensors[0].bytes, 3u);
  expect_refused(one("F4", "[3]", "[0,2]", 2), "F4 [3] is 12 bits, not a whole number of bytes");
  expect_refused(one("FOO", "[4]", "[0,4]", 4), "tensor \"a\": its dtype \"FOO\" is unknown");
  expect_refused(one("float32", "[1]", "[0,4]", 4), "\"float32\" is unknown");
  expect_refused(one("F32", "[16,32]", "[0,512]", 512),
                 "span 512 bytes, but float32 [16,32] has 2048");
}

TEST(SafetensorsHeader, WhatIsMadeParsesToTheSame) {
  const std::vector<TensorSpec> specs = {{"q\"\\\n\xc3\xa9", DType::kBF16, {2, 3}},
                                         {"z", DType::kF32, {0}},
                                         {"s", DType::kF64, {}},
                                         {"packed", DType::kF4, {4}}};
  const auto header = make_header(specs, {{"k", "v\t"}});
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->size() % 8, 0u);
  const auto got = parse(*header + std::string(12 + 8 + 2, 'd'));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  ASSERT_EQ(got->tensors.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(got->tensors[i].spec, specs[i]);
  }
  EXPECT_EQ(got->tensors[2].position, header->size() + 12);
  EXPECT_EQ(got->metadata.at("k"), "v\t");
}

TEST(SafetensorsHeader, CaseB47_TheWriterRefusesWhatReadersRefuse) {
  const auto refuse = [](std::vector<TensorSpec> specs, std::map<std::string, std::string> metadata,
                         std::string_view why, const SafetensorsLimits& limits = {}) {
    const auto got = make_header(specs, metadata, limits);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.status().code(), Code::kInvalidArgument);
    EXPECT_NE(got.status().message().find(why), std::string::npos) << got.status().message();
  };
  refuse({{"", DType::kU8, {1}}}, {}, "empty");
  refuse({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}, {}, "comes twice");
  refuse({{"__metadata__", DType::kU8, {1}}}, {}, "__metadata__");
  refuse({{"a", DType::kF8E4M3FNUZ, {1}}}, {}, "no name for dtype float8_e4m3fnuz");
  refuse({{"a", DType::kF4, {3}}}, {}, "12 bits");
  refuse({{"a", DType::kU8, {-1}}}, {}, "dimension 0 is -1");
  refuse({{"a", DType::kU8, {INT64_MAX}}, {"b", DType::kU8, {1}}}, {}, "overflow");
  refuse({}, {{"k", "\xff"}}, "metadata \"k\"");
  refuse({{"a", DType::kU8, {1}}}, {}, "takes more than 40", {.header_bytes_max = 40});
}

}  // namespace
}  // namespace changeover::safetensors
