// Claims about processes, tried with real ones: SIGKILL and SIGSTOP in the middle of a stream.
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/file.h"
#include "os/socket.h"
#include "transport/contract_kit.h"
#include "transport/shm/shm_road.h"

namespace changeover::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// Runs `body` in a forked child, which ends with its exit code; what it returns is written to a
// pipe that the parent reads.
struct Forked {
  pid_t pid = -1;
  os::Fd words;
};

Forked run_forked(const std::function<std::string()>& body) {
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(fds[0]);
    const std::string text = body();
    [[maybe_unused]] const ssize_t n = ::write(fds[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(fds[1]);
  return {pid, os::Fd(fds[0])};
}

// All the child said, then how it ended: "text" or "text|signal 9".
std::string finish(Forked& child) {
  std::string text;
  char buffer[512];
  ssize_t n = 0;
  while ((n = ::read(child.words.get(), buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(n));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child.pid, &status, 0), child.pid);
  return WIFSIGNALED(status) ? text + fmt::format("|signal {}", WTERMSIG(status)) : text;
}

void wait_until_stopped(pid_t pid) {
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
}

class Processes : public testing::TestWithParam<RoadKind> {
 protected:
  const std::vector<uint64_t> parts_ = {32, 500, 16'000'000, 32, 0, 16'000'000};

  void make(std::chrono::nanoseconds stall_limit) {
    kit_ = Kit::create({.road = GetParam(), .readers = 3, .stall_limit = stall_limit}).take();
  }
  // Reader i as a process; it receives some bytes, does `midway`, and goes on to the end.
  Forked fork_reader(uint32_t i, const std::function<void()>& midway) {
    Forked child = run_forked([&]() -> std::string {
      kit_->become_reader(i);
      const auto reader = kit_->open_reader(i).take();
      if (Status open = reader->open_stream(1); !open.ok()) {
        return open.to_string();
      }
      if (midway) {
        if (Status some = receive_parts(*reader, 1, {32, 500}, seconds(20), false); !some.ok()) {
          return some.to_string();
        }
        // With a run in hand: between copying it and giving it back.
        const Result<transport::Run> run =
            reader->receive(Part::kPayload, 4096, {}, in(seconds(20)));
        midway();
        const Status released = reader->release(*run);
        return released.ok() ? drain(*reader) : released.to_string();
      }
      const Status got = receive_parts(*reader, 1, parts_, seconds(20), true);
      (void)drain(*reader);  // stays until the publisher goes: leaving earlier would be reported
      return got.to_string();
    });
    kit_->forget_reader(i);
    return child;
  }
  // What a reader that was dropped meets in the end, after what its socket still held.
  static std::string drain(ReceiveRoad& reader) {
    while (true) {
      const Result<transport::Run> run =
          reader.receive(Part::kPayload, 1 << 20, {}, in(seconds(20)));
      if (!run.ok()) {
        return run.status().to_string();
      }
      if (Status released = reader.release(*run); !released.ok()) {
        return released.to_string();
      }
    }
  }

  std::unique_ptr<Kit> kit_;
};

TEST_P(Processes, CaseB01_KilledRankIsNamedAtOnceAndTheOthersFinish) {
  make(seconds(60));
  Forked zero = fork_reader(0, nullptr);
  Forked one = fork_reader(1, [] { ::raise(SIGKILL); });
  Forked two = fork_reader(2, nullptr);
  ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), 1).ok());
  const Instant start = in(seconds(0));
  const Status sent = send_parts(kit_->sender(), 1, parts_, seconds(30), false);
  EXPECT_LT(in(seconds(0)) - start, seconds(10));  // far below the stall limit
  EXPECT_TRUE(sent.ok()) << sent.to_string();
  const std::vector<PeerFailure> failures = kit_->sender().take_failures();
  kit_.reset();
  EXPECT_EQ(finish(zero), "ok");
  EXPECT_EQ(finish(one), "|signal 9");
  EXPECT_EQ(finish(two), "ok");
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].peer, 1u);
  EXPECT_EQ(failures[0].status.code(), Code::kUnavailable);
}

TEST_P(Processes, CaseB01_R3_StoppedRankIsDroppedAndWakesToBeingOutOfStep) {
  make(milliseconds(400));
  Forked zero = fork_reader(0, nullptr);
  Forked one = fork_reader(1, [] { ::raise(SIGSTOP); });
  Forked two = fork_reader(2, nullptr);
  ASSERT_TRUE(kit_->sender().open_stream(kit_->all(), 1).ok());
  const Status sent = send_parts(kit_->sender(), 1, parts_, seconds(30), true);
  EXPECT_TRUE(sent.ok()) << sent.to_string();
  const std::vector<PeerFailure> failures = kit_->sender().take_failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].peer, 1u);
  EXPECT_EQ(failures[0].status.code(), Code::kDeadline);
  EXPECT_THAT(failures[0].status.message(), HasSubstr("stall limit 400 ms"));
  kit_.reset();
  EXPECT_EQ(finish(zero), "ok");
  EXPECT_EQ(finish(two), "ok");
  wait_until_stopped(one.pid);
  ::kill(one.pid, SIGCONT);
  EXPECT_THAT(finish(one), HasSubstr("unavailable: "));
}

TEST_P(Processes, S4_KilledPublisherIsSeenAtOnceByItsRanks) {
  make(seconds(60));
  const auto reader = kit_->open_reader(0).take();
  Forked publisher = run_forked([&]() -> std::string {
    (void)kit_->sender().open_stream(std::vector<uint32_t>{0}, 1).ok();
    (void)send_parts(kit_->sender(), 1, {32, 500, 3000}, seconds(5), false).ok();
    ::raise(SIGKILL);
    return "lives";
  });
  kit_->become_reader(0);
  ASSERT_TRUE(reader->open_stream(1).ok());
  EXPECT_TRUE(receive_parts(*reader, 1, {32, 500, 3000}, seconds(20), false).ok());
  const Instant start = in(seconds(0));
  EXPECT_EQ(reader->receive(Part::kPayload, 1, {}, in(seconds(20))).status().code(),
            Code::kUnavailable);
  EXPECT_LT(in(seconds(0)) - start, seconds(5));
  EXPECT_EQ(finish(publisher), "|signal 9");
}

INSTANTIATE_TEST_SUITE_P(All, Processes, testing::Values(RoadKind::kTcp, RoadKind::kShm),
                         [](const auto& info) {
                           return std::string(info.param == RoadKind::kTcp ? "tcp" : "shm");
                         });

size_t entries(const std::string& folder) {
  std::error_code ignored;
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    ++count;
  }
  return count;
}

std::string mappings() {
  std::ifstream maps("/proc/self/maps");
  return {std::istreambuf_iterator<char>(maps), {}};
}

// A publisher process on a fixed name that is killed in the middle of its stream.
std::string publish_and_die(const std::string& name) {
  const os::SystemClock clock;
  Result<os::Fd> listener = os::listen_unix(name);
  if (!listener.ok()) {
    return listener.status().to_string();
  }
  Result<os::Fd> socket = os::accept_connection(*listener, clock, in(seconds(10)));
  Result<std::unique_ptr<ShmSendRoad>> road = ShmSendRoad::create({.slots = 64}, clock);
  if (!socket.ok() || !road.ok()) {
    return socket.status().to_string() + road.status().to_string();
  }
  Status status = (*road)->attach(0, "reader/0", std::move(socket).take(), in(seconds(10)));
  if (status.ok()) {
    status = (*road)->open_stream(std::vector<uint32_t>{0}, 1);
  }
  if (status.ok()) {
    status = send_parts(**road, 1, {32, 0, 2 << 20}, seconds(10), false);
  }
  if (!status.ok()) {
    return status.to_string();
  }
  ::raise(SIGKILL);
  return "lives";
}

TEST(ShmProcesses, CaseB33_S4_NothingIsLeftAfterTwentyKills) {
  const os::SystemClock clock;
  const std::string name = fmt::format("changeover-test-b33-{}", ::getpid());
  const size_t named_before = entries("/dev/shm");
  const size_t descriptors_before = entries("/proc/self/fd");
  for (int round = 0; round < 20; ++round) {
    Forked publisher = run_forked([&] { return publish_and_die(name); });
    Result<os::Fd> socket = os::dial_unix(name, clock, in(seconds(1)));
    while (!socket.ok() && socket.status().code() == Code::kUnavailable) {
      ::sched_yield();  // The child is not listening yet.
      socket = os::dial_unix(name, clock, in(seconds(1)));
    }
    ASSERT_TRUE(socket.ok()) << socket.status().to_string();
    auto reader =
        ShmReceiveRoad::create(std::move(socket).take(), "publisher", clock, in(seconds(10)));
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_THAT(mappings(), HasSubstr("memfd:changeover-ring"));
    ASSERT_TRUE((*reader)->open_stream(1).ok());
    EXPECT_TRUE(receive_parts(**reader, 1, {32, 0, 2 << 20}, seconds(10), false).ok());
    EXPECT_EQ((*reader)->receive(Part::kPayload, 1, {}, in(seconds(10))).status().code(),
              Code::kUnavailable);
    EXPECT_EQ(finish(publisher), "|signal 9");
  }
  EXPECT_EQ(entries("/dev/shm"), named_before);
  EXPECT_EQ(entries("/proc/self/fd"), descriptors_before);
  // The publishers are dead: a ring that stayed would be one that we hold.
  EXPECT_THAT(mappings(), testing::Not(HasSubstr("memfd:changeover-")));
}

TEST(ShmProcesses, CaseB33_NoRoomIsAPlainErrorWithTheNumbers) {
  Forked child = run_forked([]() -> std::string {
    const rlimit limit{32 << 20, 32 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return ShmSendRoad::create({.slots = 64}, os::SystemClock()).status().to_string();
  });
  const std::string text = finish(child);
  EXPECT_THAT(text, HasSubstr("no room: changeover-ring needs 67"));
  EXPECT_THAT(text, HasSubstr("MemAvailable is "));
  EXPECT_THAT(text, HasSubstr("(RLIMIT_FSIZE) 33554432"));
}

}  // namespace
}  // namespace changeover::transport
