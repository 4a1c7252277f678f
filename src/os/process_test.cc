#include "os/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/poll.h"

namespace changeover::os {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const SystemClock kClock;

Instant in(std::chrono::nanoseconds duration) {
  return kClock.now() + duration;
}

std::string read_all(const Fd& fd) {
  std::string text;
  char buffer[256];
  ssize_t n = 0;
  while ((n = ::read(fd.get(), buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

TEST(Child, PipesEnvironmentAndExitCode) {
  Child child = Child::spawn({.argv = {"sh", "-c", "read x; echo \"$x $Y\"; echo no >&2; exit 3"},
                              .environment = {{"Y", "there"}},
                              .input = ChildStream::kPipe,
                              .output = ChildStream::kPipe,
                              .error = ChildStream::kPipe})
                    .take();
  ASSERT_EQ(::write(child.input().get(), "hello\n", 6), 6);
  EXPECT_EQ(read_all(child.output()), "hello there\n");
  EXPECT_EQ(read_all(child.error()), "no\n");
  for (int again = 0; again < 2; ++again) {
    const Result<ExitStatus> status = child.wait(kClock, in(seconds(20)));
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(status->code, 3);
    EXPECT_EQ(status->to_string(), "exit code 3");
  }
  EXPECT_TRUE(child.signal(SIGTERM).ok());  // nobody is there any more
}

TEST(Child, CommandThatIsNotThereIsAnError) {
  const Status status = Child::spawn({.argv = {"no-such-command-here"}}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("no-such-command-here: No such file"));
  EXPECT_EQ(Child::spawn({}).status().code(), Code::kInvalidArgument);
}

TEST(Child, R7_WaitNamesTheProcessAndSignalsAreReported) {
  Child child = Child::spawn({.argv = {"sleep", "1000"}}).take();
  const Status early = child.wait(kClock, in(milliseconds(20))).status();
  EXPECT_EQ(early.code(), Code::kDeadline);
  EXPECT_THAT(early.message(), HasSubstr("for process " + std::to_string(child.pid())));
  ASSERT_TRUE(child.signal(SIGTERM).ok());
  EXPECT_EQ(child.wait(kClock, in(seconds(20)))->to_string(), "signal 15");
}

TEST(Child, S4_EndsWithItsObject) {
  pid_t pid = 0;
  {
    Child first = Child::spawn({.argv = {"sleep", "1000"}}).take();
    pid = first.pid();
    Child second = std::move(first);
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);  // reaped, so the number is free
}

TEST(Child, S4_EndsWithItsLauncher) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    Result<Child> child = Child::spawn({.argv = {"sleep", "1000"}});
    const pid_t pid = child.ok() ? child->pid() : -1;
    if (::write(fds[1], &pid, sizeof pid) != sizeof pid) {
      ::_exit(1);
    }
    ::pause();
    ::_exit(1);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(fds[0], &grandchild, sizeof grandchild),
            static_cast<ssize_t>(sizeof grandchild));
  ASSERT_GT(grandchild, 0);
  const Fd alive(static_cast<int>(::syscall(SYS_pidfd_open, grandchild, 0)));
  ASSERT_TRUE(alive.valid());
  EXPECT_FALSE(wait_readable(alive, kClock, in(milliseconds(0)), "its end").ok());
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(wait_readable(alive, kClock, in(seconds(20)), "its end").ok());
  ::close(fds[0]);
  ::close(fds[1]);
}

}  // namespace
}  // namespace changeover::os
