// What the machine itself can do, to stand beside a figure of ours in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <changeover/status.h>

namespace changeover::bench {

// Seconds for another process to get these bytes into memory of its own, after one pass that is
// not counted. Both fork; the child runs nothing but the loop named here.

// Through one shared mapping: copied in by us and out by the child, 8 slots of 1 MiB in flight.
Result<double> shm_copy_limit(std::span<const std::byte> source);

// Over one loopback connection: write() here, read() there.
Result<double> tcp_write_read_limit(std::span<const std::byte> source);

// A forked child that receives a number of passes into memory of its own, one after the other.
// `child` runs there, once per pass (0, 1, ...) with that memory; `parent` runs here. Returns the
// seconds of the last pass, from the start of `parent` to the end of `child`.
Result<double> time_two_processes(
    uint64_t bytes, int passes, const std::function<Status(int pass)>& parent,
    const std::function<Status(int pass, std::span<std::byte>)>& child);

}  // namespace changeover::bench
