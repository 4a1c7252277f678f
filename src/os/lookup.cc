#include "os/lookup.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include "os/error.h"

namespace changeover::os {
namespace {

struct Answer {
  std::mutex mutex;
  std::condition_variable came;
  bool done = false;
  int error = 0;
  AddressList list{nullptr, &::freeaddrinfo};
};

addrinfo hints_for(int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  return hints;
}

Result<AddressList> result(const std::string& host, int error, AddressList list) {
  if (error != 0) {
    return Status(Code::kUnavailable, fmt::format("host \"{}\": {}", host, ::gai_strerror(error)));
  }
  return list;
}

}  // namespace

Result<AddressList> look_up(const std::string& host, uint16_t port, int flags, const Clock& clock,
                            Instant deadline, SystemLookup lookup) {
  const std::string service = std::to_string(port);
  const addrinfo numeric = hints_for(flags | AI_NUMERICHOST);
  addrinfo* addresses = nullptr;
  const int error = ::getaddrinfo(host.c_str(), service.c_str(), &numeric, &addresses);
  if (error != EAI_NONAME) {
    return result(host, error, AddressList(addresses, &::freeaddrinfo));
  }
  // Shared: whoever of the two is last, the thread or the caller, lets go of it.
  auto answer = std::make_shared<Answer>();
  try {
    std::thread([answer, host, service, flags, lookup = std::move(lookup)] {
      const addrinfo hints = hints_for(flags);
      addrinfo* list = nullptr;
      const int code = lookup(host.c_str(), service.c_str(), &hints, &list);
      const std::lock_guard lock(answer->mutex);
      answer->error = code;
      answer->list.reset(list);
      answer->done = true;
      answer->came.notify_all();
    }).detach();
  } catch (const std::system_error& failed) {
    return Status(Code::kExhausted,
                  fmt::format("host \"{}\": no thread to look it up: {}", host, failed.what()));
  }
  const Instant start = clock.now();
  std::unique_lock lock(answer->mutex);
  if (!answer->came.wait_for(lock, deadline - start, [&] { return answer->done; })) {
    return Status(Code::kDeadline,
                  fmt::format("waited {} for the address of host \"{}\": no name server answered",
                              duration_text((clock.now() - start).count()), host));
  }
  return result(host, answer->error, std::move(answer->list));
}

}  // namespace changeover::os
