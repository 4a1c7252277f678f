#include "control/loop.h"

#include <utility>

#include <asio/post.hpp>

#include "control/loop_impl.h"

namespace changeover::control {

Loop::Loop() : impl_(std::make_unique<Impl>()) {}

Loop::~Loop() {
  stop();
}

void Loop::start() {
  if (!impl_->thread.joinable()) {
    impl_->thread = std::thread([this] { impl_->context.run(); });
  }
}

void Loop::stop() {
  impl_->context.stop();
  if (impl_->thread.joinable()) {
    impl_->thread.join();
  }
}

void Loop::post(std::function<void()> work) {
  asio::post(impl_->context, std::move(work));
}

void Loop::set_timer(std::chrono::nanoseconds from_now, std::function<void()> work) {
  impl_->timer.expires_after(from_now);
  impl_->timer.async_wait([work = std::move(work)](std::error_code error) {
    if (!error) {
      work();
    }
  });
}

void Loop::cancel_timer() {
  impl_->timer.cancel();
}

}  // namespace changeover::control
