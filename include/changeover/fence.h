// The fence: a rank's refusal to serve while its memory may hold a mix of versions (rule T7).
#pragma once

#include <chrono>
#include <string>

#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover {

class Fence {
 public:
  // Keeps one whole version in front of a reader; the fence cannot rise over it. Movable, may be
  // dropped on another thread. Must not outlive its Fence.
  class Guard {
   public:
    Guard() = default;
    Guard(Fence* fence, VersionStamp version) : fence_(fence), version_(version) {}
    Guard(Guard&& other) noexcept : fence_(other.fence_), version_(other.version_) {
      other.fence_ = nullptr;
    }
    Guard& operator=(Guard&& other) noexcept;
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { release(); }

    VersionStamp version() const { return version_; }
    void release();  // Idempotent.

   private:
    Fence* fence_ = nullptr;
    VersionStamp version_;
  };

  virtual ~Fence() = default;

  // Any thread. Asked before every forward, prefill, and each later way into serving. Waits up to
  // `timeout` for the fence to fall and the step gate to open (rule V6), never for the network;
  // else kRefused with the reason ("receiving version 7", "version none", "waiting for release").
  virtual Result<Guard> acquire(std::chrono::nanoseconds timeout) = 0;

  virtual bool up() const = 0;
  virtual std::string reason() const = 0;

 private:
  friend class Guard;
  virtual void release_guard() = 0;
};

}  // namespace changeover
