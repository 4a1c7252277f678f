// Stands between ranks and a tcp publisher, and breaks one data connection once, at a byte.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include <changeover/endpoint.h>

#include "os/clock.h"
#include "os/fd.h"
#include "transport/faulty/faulty_road.h"

namespace changeover::e2e {

class Proxy {
 public:
  explicit Proxy(const Endpoint& publisher);
  ~Proxy();
  const Endpoint& endpoint() const { return endpoint_; }
  // Waits for its byte, counted from now, on the data connection that carries it first. kLosePeer
  // and kTruncate end that connection there, kStall passes nothing on any more.
  void plan(const transport::FaultPlan& fault);
  bool struck() const { return struck_; }

 private:
  struct Pair {
    os::Fd rank;
    os::Fd publisher;
    bool known = false;
    bool is_data = false;
    bool stalled = false;
    uint64_t plan = 0;  // of which `seen` counts
    uint64_t seen = 0;
  };
  void run();
  void accept();
  bool to_publisher(Pair& pair);
  bool to_rank(Pair& pair);
  size_t damage(Pair& pair, std::span<std::byte> bytes);

  const Endpoint publisher_;
  Endpoint endpoint_;
  os::SystemClock clock_;
  os::Fd listener_;
  std::list<Pair> pairs_;  // the thread's
  std::mutex mutex_;       // the two below
  transport::FaultPlan fault_;
  uint64_t plans_ = 0;
  std::atomic<bool> struck_{true};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace changeover::e2e
