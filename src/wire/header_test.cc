#include "wire/header.h"

#include <array>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace changeover::wire {
namespace {

constexpr FrameLimits kSmall{.metadata_bytes_max = 100, .payload_bytes_max = 1000};

void expect_failed(const HeaderCheck& check, bool in_step, std::string_view why) {
  EXPECT_EQ(check.status.code(), Code::kCorrupt);
  EXPECT_EQ(check.in_step, in_step);
  EXPECT_NE(check.status.message().find(why), std::string::npos) << check.status.message();
}

TEST(Header, W1_FourLittleEndianWords) {
  const Header header{kBucket, 0x0102, -2, INT64_MIN};
  const std::array<std::byte, kHeaderBytes> bytes = encode_header(header);
  const uint8_t wanted[] = {1,    0,    0,    0,    0,    0,    0,    0,     //
                            2,    1,    0,    0,    0,    0,    0,    0,     //
                            0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,  //
                            0,    0,    0,    0,    0,    0,    0,    0x80};
  EXPECT_EQ(std::memcmp(bytes.data(), wanted, sizeof(wanted)), 0);
  EXPECT_EQ(decode_header(bytes), header);
}

TEST(Header, W5_EndWithSizesFailsButEndsTheStream) {
  EXPECT_TRUE(check_header({kEnd, 0, 0, 7}, kSmall, 7).status.ok());
  expect_failed(check_header({kEnd, 1, 0, 7}, kSmall, 7), true, "END carries sizes");
  expect_failed(check_header({kEnd, 0, INT64_MAX, 7}, kSmall, 7), true, "9223372036854775807");
  expect_failed(check_header({kEnd, -1, -1, 7}, kSmall, 7), true, "W5");
}

TEST(Header, W5_R6_EveryFrameCarriesTheStreamsVersion) {
  EXPECT_TRUE(check_header({kBucket, 2, 1, 7}, kSmall, 7).status.ok());
  EXPECT_TRUE(check_header({kBucket, 2, 1, 7}, kSmall, std::nullopt).status.ok());
  expect_failed(check_header({kBucket, 2, 1, 8}, kSmall, 7), true, "version 8, the stream's is 7");
  expect_failed(check_header({kEnd, 0, 0, 8}, kSmall, 7), true, "version 8, the stream's is 7");
  expect_failed(check_header({kBucket, 2, 1, -1}, kSmall, std::nullopt), true, "-1");
}

TEST(Header, W7_R3_SizesThatCannotBeTrustedAreOutOfStep) {
  EXPECT_TRUE(check_header({kBucket, 100, 1000, 0}, kSmall, {}).status.ok());
  expect_failed(check_header({kBucket, -1, 1, 0}, kSmall, {}), false, "metadata size is -1");
  expect_failed(check_header({kBucket, 2, -5, 0}, kSmall, {}), false, "payload size is -5");
  expect_failed(check_header({kBucket, 101, 1, 0}, kSmall, {}), false,
                "101 bytes of metadata, the ceiling is 100");
  expect_failed(check_header({kBucket, 2, 1001, 0}, kSmall, {}), false,
                "1001 bytes of payload, the ceiling is 1000");
  expect_failed(check_header({kBucket, (64 << 20) + 1, 1, 0}, {}, {}), false, "67108864");
  expect_failed(check_header({99, 2, -5, 0}, kSmall, {}), false, "payload size is -5");
}

TEST(Header, R2_AnUnknownCommandIsReceivedByItsSizes) {
  expect_failed(check_header({2, 3, 4, 7}, kSmall, 7), true, "unknown command 2");
  expect_failed(check_header({-1, 3, 4, 7}, kSmall, 7), true, "unknown command -1");
}

}  // namespace
}  // namespace changeover::wire
