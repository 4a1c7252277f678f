// The Asio half of Loop, for the few files that include Asio.
#pragma once

#include <thread>

#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "control/loop.h"

namespace changeover::control {

using Socket = asio::generic::stream_protocol::socket;

struct Loop::Impl {
  // Not io_context{1}: with that hint, what the loop thread posts overtakes nothing but may be
  // overtaken by what other threads post after it.
  asio::io_context context;
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::steady_timer timer{context};
  std::thread thread;
};

}  // namespace changeover::control
