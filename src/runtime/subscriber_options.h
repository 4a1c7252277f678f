#pragma once

#include <chrono>

#include <changeover/subscriber.h>

namespace changeover::runtime {

// What can be said of them before anything is opened.
Status check_options(const SubscriberOptions& options, const LoadPlan& plan);

// How long the fence waits for steps inside. In `staged` that is after the whole stream, while the
// publisher counts the time for this rank's vote.
std::chrono::nanoseconds drain_time(const SubscriberOptions& options);

}  // namespace changeover::runtime
