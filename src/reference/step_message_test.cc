#include "reference/step_message.h"

#include <gtest/gtest.h>

namespace changeover::reference {
namespace {

StepMessage full() {
  StepMessage message;
  message.kind = StepKind::kDone;
  message.yes = true;
  message.sender.bytes.fill(0xA5);
  message.step = 0x0102030405060708;
  message.last_run = 41;
  message.checksum = UINT64_MAX;
  message.rank = 2;
  message.engine_size = 3;
  message.version = VersionStamp{1, 7};
  message.next = VersionStamp{2, 8};
  message.job = "default";
  message.engine = "engine-a";
  message.text = "why not";
  return message;
}

TEST(StepMessage, ComesBackAsItWentOut) {
  for (uint8_t kind = 1; kind <= 11; ++kind) {
    StepMessage message = full();
    message.kind = static_cast<StepKind>(kind);
    const auto back = decode_step_message(encode_step_message(message));
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, message);
    EXPECT_NE(step_kind_name(message.kind), "unknown");
  }
  StepMessage bare;
  EXPECT_EQ(*decode_step_message(encode_step_message(bare)), bare);
}

TEST(StepMessage, LayoutIsFixedAndLittleEndian) {
  const auto bytes = encode_step_message(full());
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 'C');
  EXPECT_EQ(std::to_integer<int>(bytes[6]), 7);      // kind
  EXPECT_EQ(std::to_integer<int>(bytes[7]), 7);      // yes, version, next
  EXPECT_EQ(std::to_integer<int>(bytes[24]), 0x08);  // step, lowest byte first
  EXPECT_EQ(bytes.size(), 88 + 3 * 2 + 7 + 8 + 7u);
}

TEST(StepMessage, S3_EveryShorterAndLongerMessageIsRefused) {
  const auto bytes = encode_step_message(full());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = decode_step_message(std::span(bytes).first(size));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.status().code(), Code::kCorrupt);
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_NE(decode_step_message(longer).status().message().find("1 bytes left over"),
            std::string::npos);
}

TEST(StepMessage, S2_CeilingsAreCheckedAndNamed) {
  const auto with = [](size_t at, std::initializer_list<int> values) {
    auto bytes = encode_step_message(full());
    for (const int value : values) {
      bytes[at++] = static_cast<std::byte>(value);
    }
    return decode_step_message(bytes).status().message();
  };
  EXPECT_NE(with(0, {'X'}).find("does not begin"), std::string::npos);
  EXPECT_NE(with(4, {9}).find("format 9, this side speaks 2"), std::string::npos);
  EXPECT_NE(with(6, {0}).find("unknown kind 0"), std::string::npos);
  EXPECT_NE(with(6, {12}).find("unknown kind 12"), std::string::npos);
  EXPECT_NE(with(7, {8}).find("unknown flags 8"), std::string::npos);
  EXPECT_NE(with(31, {0xFF}).find("step number over"), std::string::npos);
  EXPECT_NE(with(71, {0xFF}).find("negative version"), std::string::npos);
  EXPECT_NE(with(87, {0xFF}).find("negative version"), std::string::npos);
  EXPECT_NE(with(88, {0x01, 0x01}).find("job of 257 bytes, at most 256"), std::string::npos);
  const std::vector<std::byte> huge(kStepMessageBytesMax + 1);
  EXPECT_NE(decode_step_message(huge).status().message().find("1537 bytes, at most 1536"),
            std::string::npos);
}

TEST(StepMessage, OwnStringsAreCutToFit) {
  StepMessage message = full();
  message.job = message.engine = message.text = std::string(5000, 'x');
  const auto bytes = encode_step_message(message);
  EXPECT_LE(bytes.size(), kStepMessageBytesMax);
  const auto back = decode_step_message(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->engine.size(), kStepNameBytesMax);
}

}  // namespace
}  // namespace changeover::reference
