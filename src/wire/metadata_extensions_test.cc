// What decode_metadata() makes of the extensions of the wire (rule W6), and refuses (rule W7).
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "wire/metadata.h"

namespace changeover::wire {
namespace {

constexpr std::string_view kHex = "00112233445566778899aabbccddeeff";

// An entry of uint8 [elements], with more keys at its end.
std::string entry(std::string_view name, uint64_t elements, uint64_t offset, uint64_t nbytes,
                  std::string_view more = "") {
  return R"({"name":")" + std::string(name) + R"(","shape":[)" + std::to_string(elements) +
         R"(],"dtype":"uint8","offset":)" + std::to_string(offset) + R"(,"nbytes":)" +
         std::to_string(nbytes) + std::string(more) + "}";
}

std::string slice(uint64_t first, uint64_t total) {
  return R"(,"slice":[)" + std::to_string(first) + "," + std::to_string(total) + "]";
}

std::string xxh3(std::string_view text) {
  return R"(,"xxh3":")" + std::string(text) + "\"";
}

Result<std::vector<Entry>> decode(const std::vector<std::string>& entries, uint64_t payload_bytes,
                                  const WireExtensions& known = kEveryWireExtension) {
  std::string text = "[";
  for (const std::string& one : entries) {
    text += (text.size() > 1 ? "," : "") + one;
  }
  text += "]";
  return decode_metadata(std::as_bytes(std::span(text)), payload_bytes, known);
}

void expect_refused(const std::vector<std::string>& entries, uint64_t payload_bytes,
                    std::string_view why, const WireExtensions& known = kEveryWireExtension) {
  const auto got = decode(entries, payload_bytes, known);
  ASSERT_FALSE(got.ok()) << why;
  EXPECT_EQ(got.status().code(), Code::kCorrupt);
  EXPECT_NE(got.status().message().find(why), std::string::npos)
      << got.status().message() << "\nwanted: " << why;
}

TEST(MetadataExtensions, W6_DigestsAndSlicesAreReadAndWrittenAgain) {
  const std::vector<std::string> entries = {
      entry("w", 10, 0, 4, slice(6, 10) + xxh3(kHex)),
      entry("b", 3, 4, 3, xxh3(kHex)),
  };
  const auto got = decode(entries, 7);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ((*got)[0].slice, (TensorSlice{6, 10}));
  EXPECT_EQ((*got)[0].nbytes, 4u);
  EXPECT_EQ((*got)[0].spec.shape, (std::vector<int64_t>{10}));
  EXPECT_EQ((*got)[0].xxh3->to_text(), kHex);
  EXPECT_TRUE((*got)[0].is_last_part());
  EXPECT_FALSE((*got)[1].slice);
  EXPECT_EQ((*got)[1].xxh3->to_text(), kHex);
  std::string text;
  ASSERT_TRUE(encode_metadata(*got, text).ok());
  EXPECT_EQ(text, "[" + entries[0] + "," + entries[1] + "]");
}

TEST(MetadataExtensions, W6_NothingOfThemIsLeftInTheNextFrame) {
  MetadataDecoder decoder;
  const std::string extended = "[" + entry("w", 10, 0, 4, slice(6, 10) + xxh3(kHex)) + "]";
  ASSERT_TRUE(decoder.decode(std::as_bytes(std::span(extended)), 4).ok());
  const std::string plain = "[" + entry("b", 3, 0, 3) + "]";
  const auto got = decoder.decode(std::as_bytes(std::span(plain)), 3);
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE((*got)[0].slice || (*got)[0].xxh3);
}

TEST(MetadataExtensions, W6_APlainReaderIgnoresTheirKeys) {
  const auto got = decode({entry("w", 4, 0, 4, xxh3("nonsense"))}, 4, {});
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE((*got)[0].xxh3);
  // And so refuses what they are needed for.
  expect_refused({entry("w", 10, 0, 4, slice(0, 10))}, 4, "nbytes is 4, but uint8 [10] has 10",
                 {.xxh3 = true, .aligned = true, .slices = false});
  expect_refused({entry("a", 1, 0, 1), entry("b", 4, 64, 4)}, 68, "a gap of 63 bytes",
                 {.xxh3 = true, .aligned = false, .slices = true});
}

TEST(MetadataExtensions, W6_W7_XxhIs32HexDigitsInTheLastPart) {
  for (const std::string& bad :
       {std::string(), std::string(kHex.substr(1)), std::string(kHex) + "0",
        std::string("00112233445566778899AABBCCDDEEFF"), std::string(kHex.substr(1)) + "g"}) {
    expect_refused({entry("w", 4, 0, 4, xxh3(bad))}, 4,
                   "tensor \"w\": its xxh3 \"" + bad + "\" is not 32 lower-case hex digits (W6)");
  }
  expect_refused({entry("w", 4, 0, 4, R"(,"xxh3":5)")}, 4, "its xxh3 is an integer, it must be");
  expect_refused({entry("w", 4, 0, 4, R"(,"xxh3":null)")}, 4, "its xxh3 is null");
  expect_refused({entry("w", 10, 0, 4, slice(0, 10) + xxh3(kHex))}, 4,
                 "tensor \"w\": its xxh3 comes with a part that is not its last");
}

TEST(MetadataExtensions, W6_W7_SliceIsTwoNumbers) {
  const auto refused = [](std::string_view value, std::string_view why) {
    expect_refused({entry("w", 10, 0, 4, R"(,"slice":)" + std::string(value))}, 4, why);
  };
  refused("4", "its slice is an integer, it must be an array");
  refused("null", "its slice is null");
  refused("[]", "its slice has 0 elements, it must be [first,total]");
  refused("[0,10,10]", "its slice has 3 elements");
  refused("[0,\"10\"]", "its slice's total is a string");
  refused("[0.0,10]", "its slice's first byte is a number with a fraction");
  refused("[-1,10]", "its slice's first byte is -1, it may not be negative");
  refused("[0,18446744073709551615]", "its slice's total does not fit 64 bits");
}

TEST(MetadataExtensions, W6_W7_SliceLiesWithinTheTensor) {
  const auto refused = [](uint64_t first, uint64_t total, uint64_t nbytes, std::string_view why) {
    expect_refused({entry("w", 10, 0, nbytes, slice(first, total))}, nbytes, why);
  };
  refused(0, 11, 4, "tensor \"w\": its slice's total is 11, but uint8 [10] has 10 bytes (W6)");
  refused(0, 0, 4, "its slice's total is 0, but");
  refused(7, 10, 4, "its part of bytes 7 + 4 ends after the tensor's 10 (W6)");
  refused(11, 10, 4, "its part of bytes 11 + 4 ends after");
  refused(INT64_MAX, 10, 4, "ends after the tensor's 10");
  refused(4, 10, 0, "its part from byte 4 has no bytes (W6)");
  expect_refused({entry("w", 0, 0, 0, slice(0, 0))}, 0, "has no bytes");
  expect_refused({entry("w", 10, 2, 4, slice(0, 10))}, 4, "2 + 4 end after the payload of 4");
  EXPECT_TRUE(decode({entry("w", 10, 0, 10, slice(0, 10))}, 10).ok());
}

TEST(MetadataExtensions, W6_W7_OnePartPerFrame) {
  expect_refused({entry("w", 10, 0, 4, slice(0, 10)), entry("w", 10, 4, 4, slice(4, 10))}, 8,
                 "its part ends at 4 of the payload's 8");
  expect_refused({entry("w", 10, 0, 6, slice(4, 10)), entry("v", 10, 6, 4, slice(0, 10))}, 10,
                 "tensor \"v\": a second part in one frame, after one of tensor \"w\" (W6)");
  expect_refused({entry("w", 10, 0, 6, slice(4, 10)), entry("w", 10, 6, 4, slice(0, 10))}, 10,
                 "tensor \"w\": a second part in one frame");
}

TEST(MetadataExtensions, W6_W7_PartsLieBackToBackOverTheFrames) {
  EXPECT_TRUE(decode({entry("a", 2, 0, 2), entry("w", 10, 2, 4, slice(0, 10))}, 6).ok());
  EXPECT_TRUE(decode({entry("w", 10, 0, 4, slice(6, 10)), entry("a", 2, 4, 2)}, 6).ok());
  expect_refused(
      {entry("w", 10, 0, 4, slice(0, 10)), entry("a", 2, 4, 2)}, 6,
      "tensor \"w\": its part ends at 4 of the payload's 6, a part that another follows");
  expect_refused({entry("a", 2, 0, 2), entry("w", 10, 2, 4, slice(6, 10))}, 6,
                 "its part from byte 6 is at offset 2, a part that follows another is the first");
}

TEST(MetadataExtensions, W6_W7_GapsUnder64AlignEveryTensorOfTheFrame) {
  const std::string a = entry("a", 60, 0, 60);
  EXPECT_TRUE(decode({a, entry("b", 4, 64, 4), entry("c", 4, 128, 4)}, 132).ok());
  EXPECT_TRUE(decode({a, entry("z", 0, 60, 0), entry("b", 4, 64, 4)}, 68).ok());
  expect_refused({entry("a", 64, 0, 64), entry("b", 4, 128, 4)}, 132,
                 "tensor \"b\": a gap of 64 bytes before its offset 128, only gaps under 64");
  expect_refused({a, entry("b", 4, 62, 4)}, 66,
                 "tensor \"b\": a gap of 2 bytes before its offset 62, which is not a multiple");
  expect_refused({a, entry("b", 3, 60, 3), entry("c", 4, 64, 4)}, 68,
                 "tensor \"b\": its offset 60 is not a multiple of 64, in a frame with gaps");
  expect_refused({entry("b", 4, 64, 4)}, 68, "a gap of 64 bytes before its offset 64");
  expect_refused({a}, 64, "the payload has 64 bytes, its tensors cover 60");
  expect_refused({a, entry("b", 4, 59, 4)}, 63, "overlap");
}

}  // namespace
}  // namespace changeover::wire
