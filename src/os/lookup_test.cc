#include "os/lookup.h"

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace changeover::os {
namespace {

using namespace std::chrono_literals;
using testing::ContainsRegex;
using testing::HasSubstr;

const SystemClock kClock;

TEST(Lookup, R7_ANameServerThatDoesNotAnswerMeetsTheDeadline) {
  // Shared: the thread that is left behind ends after the test's own variables.
  auto entered = std::make_shared<std::promise<void>>();
  auto release = std::make_shared<std::promise<void>>();
  auto released = std::make_shared<std::promise<void>>();
  const auto found = look_up("trainer.example", 7000, 0, kClock, kClock.now() + 20ms,
                             [=](const char*, const char*, const addrinfo*, addrinfo**) {
                               entered->set_value();
                               release->get_future().wait();
                               released->set_value();
                               return EAI_AGAIN;
                             });
  EXPECT_EQ(found.status().code(), Code::kDeadline);
  EXPECT_THAT(found.status().message(), HasSubstr("trainer.example"));
  EXPECT_THAT(found.status().message(), ContainsRegex("waited [0-9]+ ms for"));
  entered->get_future().wait();
  release->set_value();
  released->get_future().wait();
}

TEST(Lookup, AnAddressIsLookedUpNowhere) {
  const auto never = [](const char*, const char*, const addrinfo*, addrinfo**) {
    ADD_FAILURE() << "looked up";
    return EAI_FAIL;
  };
  for (const char* address : {"127.0.0.1", "::1"}) {
    const auto found = look_up(address, 7, 0, kClock, kClock.now(), never);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ((*found)->ai_socktype, SOCK_STREAM);
  }
}

TEST(Lookup, ANameThatIsKnownAndOneThatIsNot) {
  EXPECT_TRUE(look_up("localhost", 7, 0, kClock, kClock.now() + 10s).ok());
  const auto unknown =
      look_up("nobody", 7, 0, kClock, kClock.now() + 10s,
              [](const char*, const char*, const addrinfo*, addrinfo**) { return EAI_NONAME; });
  EXPECT_EQ(unknown.status().code(), Code::kUnavailable);
  EXPECT_THAT(unknown.status().message(), HasSubstr("nobody"));
}

}  // namespace
}  // namespace changeover::os
