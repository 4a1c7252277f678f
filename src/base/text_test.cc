// Text helpers and the small value types.
#include <changeover/types.h>

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/utf8.h"

namespace changeover {
namespace {

TEST(Utf8, AcceptsExactlyWellFormedText) {
  for (const std::string_view good :
       {"", "plain ascii of more than eight", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(base::is_valid_utf8(good)) << good;
  }
  for (const std::string_view bad :
       {"\x80", "\xbf", "\xc0\xaf", "\xc1\xbf", "\xc2", "\xc2 ", "\xe0\x9f\xbf", "\xe0\xa0",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff", "12345678\x80", "1234567\xc2"}) {
    EXPECT_FALSE(base::is_valid_utf8(bad)) << bad;
  }
}

TEST(Utf8, QuotedNamesCannotSpoilALog) {
  EXPECT_EQ(base::quoted("a.b"), R"("a.b")");
  EXPECT_EQ(base::quoted("a\n\x1b[31m\x7f"), R"("a\x0a\x1b[31m\x7f")");
  EXPECT_EQ(base::quoted("q\"\\"), R"("q\"\\")");
  EXPECT_EQ(base::quoted("\xc3\xa9\xff"), "\"\xc3\xa9\\xff\"");
  EXPECT_EQ(base::quoted("abcdef", 3), "\"abc\"...");
}

TEST(Types, TextForms) {
  Incarnation incarnation;
  incarnation.bytes = {0xde, 0xad, 0xbe, 0xef};
  EXPECT_EQ(incarnation.to_text(), "deadbeef000000000000000000000000");
  EXPECT_EQ((UpdateId{incarnation, 12}).to_text(), "deadbeef/12");
  EXPECT_EQ((RankName{"engine-a", 2}).to_text(), "engine-a/2");
  EXPECT_EQ(base::log_level_name(base::LogLevel::kWarning), "warning");
}

TEST(Types, ModesByName) {
  for (const Mode mode : {Mode::kInPlace, Mode::kJournal, Mode::kStaged, Mode::kSwap}) {
    ASSERT_TRUE(parse_mode(mode_name(mode)).ok());
    EXPECT_EQ(*parse_mode(mode_name(mode)), mode);
  }
  EXPECT_NE(parse_mode("In_place").status().message().find("\"In_place\""), std::string::npos);
}

}  // namespace
}  // namespace changeover
