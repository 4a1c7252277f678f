#include "tests/e2e/child.h"

#include <thread>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/poll.h"

namespace changeover::e2e {

using namespace std::chrono_literals;

Process::Process(std::vector<std::string> arguments) {
  os::SpawnOptions options;
  options.argv = {CHANGEOVER_BINARY_DIR "/bin/e2e_process"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.input = os::ChildStream::kPipe;
  options.output = os::ChildStream::kPipe;
  auto child = os::Child::spawn(options);
  EXPECT_TRUE(child.ok()) << child.status().to_string();
  child_.emplace(std::move(child).take());
}

std::string Process::line() {
  const Instant until = clock_.now() + 10s;
  for (;;) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    if (!os::wait_readable(child_->output(), clock_, until, "a line").ok()) {
      return "";
    }
    char text[512];
    const ssize_t got = ::read(child_->output().get(), text, sizeof(text));
    if (got <= 0) {
      return "";
    }
    pending_.append(text, static_cast<size_t>(got));
  }
}

std::string Process::ask() {
  EXPECT_EQ(::write(child_->input().get(), "\n", 1), 1);
  return line();
}

std::string Process::wait_until(const std::string& answer) {
  const Instant until = clock_.now() + 10s;
  std::string last;
  while (clock_.now() < until) {
    last = ask();
    if (last == answer) {
      return "";
    }
    std::this_thread::yield();
  }
  return last;
}

void Process::kill() {
  EXPECT_TRUE(child_->signal(SIGKILL).ok());
  EXPECT_TRUE(child_->wait(clock_, clock_.now() + 10s).ok());
}

void Process::stop() {
  EXPECT_TRUE(child_->signal(SIGSTOP).ok());
  siginfo_t stopped{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid()), &stopped, WSTOPPED), 0);  // All its threads.
}
void Process::go_on() {
  EXPECT_TRUE(child_->signal(SIGCONT).ok());
}

Process rank_process(const Model& model, const Endpoint& endpoint, const std::string& engine,
                     int rank, int tp, Mode mode, uint64_t hold_at) {
  Process out({"rank", model.folder().string(), endpoint.to_string(), engine, std::to_string(rank),
               std::to_string(tp), std::string(mode_name(mode)), std::to_string(hold_at)});
  EXPECT_EQ(out.line(), "ready");
  return out;
}

Process publisher_process(const Model& model, const Endpoint& endpoint, int64_t version, int ranks,
                          uint64_t hold_at) {
  return Process({"publisher", model.folder().string(), endpoint.to_string(),
                  std::to_string(version), std::to_string(ranks), std::to_string(hold_at)});
}

}  // namespace changeover::e2e
