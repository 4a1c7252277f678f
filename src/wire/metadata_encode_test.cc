#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "wire/metadata.h"

namespace changeover::wire {
namespace {

std::string encode(const std::vector<TensorSpec>& specs) {
  std::string out;
  const Status status = encode_metadata(specs, out);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

std::string name_of(const std::string& name) {
  const std::string text = encode({{name, DType::kU8, {}}});
  const size_t begin = std::string_view("[{\"name\":").size();
  return text.substr(begin, text.find(",\"shape\"") - begin);
}

TEST(MetadataEncode, W2_KeysInOrderWithoutWhiteSpace) {
  EXPECT_EQ(encode({{"a", DType::kBF16, {2, 3}}, {"b", DType::kF8E4M3FN, {}}}),
            R"([{"name":"a","shape":[2,3],"dtype":"bfloat16","offset":0,"nbytes":12},)"
            R"({"name":"b","shape":[],"dtype":"float8_e4m3fn","offset":12,"nbytes":1}])");
  EXPECT_EQ(encode({}), "[]");
}

// The right-hand sides are what Python's json.dumps prints for the same names.
TEST(MetadataEncode, W2_NamesAreEscapedAsPythonDoes) {
  EXPECT_EQ(name_of("quote\".back\\slash/"), R"("quote\".back\\slash/")");
  EXPECT_EQ(name_of("\b\f\n\r\t"), R"("\b\f\n\r\t")");
  EXPECT_EQ(name_of("\x01\x0b\x1f\x7f"), "\"\\u0001\\u000b\\u001f\x7f\"");
  EXPECT_EQ(name_of("mod\xc3\xa8le.\xe5\xb1\x82"), R"("mod\u00e8le.\u5c42")");
  EXPECT_EQ(name_of("\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"), R"("\u0080\u07ff\u0800\uffff")");
  EXPECT_EQ(name_of("\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf"), R"("\ud83d\ude00\udbff\udfff")");
}

TEST(MetadataEncode, W2_WhatTheWireCannotNameIsRefusedByName) {
  std::string out = "kept";
  const auto refuse = [&](const TensorSpec& spec, std::string_view why) {
    const Status status = encode_metadata(std::vector<TensorSpec>{spec}, out);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    EXPECT_EQ(out, "kept");
  };
  refuse({"w", DType::kF4, {2}}, "tensor \"w\": dtype F4 has no name on the wire");
  refuse({"w", DType::kC64, {2}}, "C64");
  refuse({"", DType::kU8, {2}}, "empty");
  refuse({"\xff", DType::kU8, {2}}, "not UTF-8");
  refuse({"w", DType::kU8, {-2}}, "dimension 0 is -2");
}

std::string random_name(base::Prng& prng) {
  std::string name;
  const auto add = [&](uint32_t point) {
    if (point < 0x80) {
      name += static_cast<char>(point);
    } else if (point < 0x800) {
      name += {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
    } else if (point < 0x10000) {
      name += {static_cast<char>(0xe0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 63)),
               static_cast<char>(0x80 | (point & 63))};
    } else {
      name += {static_cast<char>(0xf0 | point >> 18), static_cast<char>(0x80 | (point >> 12 & 63)),
               static_cast<char>(0x80 | (point >> 6 & 63)), static_cast<char>(0x80 | (point & 63))};
    }
  };
  for (uint64_t i = 0, n = prng.below(12); i < n; ++i) {
    constexpr uint32_t kMax[] = {0x7f, 0x7f, 0x7ff, 0xd7ff, 0x10ffff};
    const auto point = static_cast<uint32_t>(1 + prng.below(kMax[prng.below(5)]));
    add(point >= 0xd800 && point < 0xe000 ? 'x' : point);
  }
  return name;
}

TEST(MetadataEncode, WhatIsEncodedDecodesToTheSame) {
  base::Prng prng(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<TensorSpec> specs;
    uint64_t payload = 0;
    for (uint64_t i = 0, n = prng.below(8); i < n; ++i) {
      TensorSpec spec;
      spec.name = std::to_string(i) + random_name(prng);
      do {
        spec.dtype = static_cast<DType>(prng.below(kDTypeCount));
      } while (!wire_dtype_name(spec.dtype));
      for (uint64_t k = prng.below(5); k > 0; --k) {
        spec.shape.push_back(prng.between(0, 6));
      }
      payload += static_cast<uint64_t>(*byte_count(spec.dtype, spec.shape));
      specs.push_back(spec);
    }
    const std::string text = encode(specs);
    const auto entries = decode_metadata(std::as_bytes(std::span(text)), payload);
    ASSERT_TRUE(entries.ok()) << entries.status().to_string() << "\n" << text;
    ASSERT_EQ(entries->size(), specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ((*entries)[i].spec, specs[i]);
    }
    std::string again;
    ASSERT_TRUE(encode_metadata(*entries, again).ok());
    EXPECT_EQ(again, text);
  }
}

}  // namespace
}  // namespace changeover::wire
