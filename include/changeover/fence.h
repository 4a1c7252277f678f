// The fence: a rank's refusal to serve while its memory may hold a mix of versions (rule T7).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover {

class Fence {
 public:
  // Keeps one whole version in front of a reader: nothing is written into the half that it names
  // while it is held. Movable, may be dropped on another thread. Must not outlive its Fence.
  class Guard {
   public:
    Guard() = default;
    Guard(Fence* fence, VersionStamp version, uint32_t half)
        : fence_(fence), version_(version), half_(half) {}
    Guard(Guard&& other) noexcept
        : fence_(other.fence_), version_(other.version_), half_(other.half_) {
      other.fence_ = nullptr;
    }
    Guard& operator=(Guard&& other) noexcept;
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { release(); }

    VersionStamp version() const { return version_; }
    // Where its weights are: ParameterStore::half(half()). Always 0, but for `swap`.
    uint32_t half() const { return half_; }
    void release();  // Idempotent.

   private:
    Fence* fence_ = nullptr;
    VersionStamp version_;
    uint32_t half_ = 0;
  };

  virtual ~Fence() = default;

  // Any thread. Asked before every forward, prefill, and each later way into serving. Waits up to
  // `timeout` for the fence to fall and the step gate to open (rule V6), never for the network;
  // else kRefused with the reason ("receiving version 7", "version none", "waiting for release").
  virtual Result<Guard> acquire(std::chrono::nanoseconds timeout) = 0;
  // For a step that carries its version (rule V6): this very version, or kRefused. In `swap` a
  // version can be had from its release until the next update but one begins, also while that of
  // the next is prepared, finished and not released: engines whose steps carry versions never
  // pause.
  virtual Result<Guard> acquire_version(VersionStamp version, std::chrono::nanoseconds timeout) = 0;

  // Which half is live now; readers use their guard's.
  virtual uint32_t half() const = 0;
  virtual bool up() const = 0;
  virtual std::string reason() const = 0;

 private:
  friend class Guard;
  virtual void release_guard(uint32_t half) = 0;
};

}  // namespace changeover
