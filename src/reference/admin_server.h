// Answers lines on a unix socket path, each with a line: one thread, bounded memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <changeover/status.h>

namespace changeover::reference {

struct AdminServerOptions {
  std::string path;
  size_t line_bytes_max = 4096;  // a longer line is answered with an error and the end
  // One more takes the place of the oldest that has asked nothing yet; where all have asked, it is
  // told so and closed.
  size_t connections_max = 16;
  std::chrono::nanoseconds idle_timeout = std::chrono::seconds(60);
};

class AdminServer {
 public:
  // One request line in, one reply line out (both without newline). On the server's thread.
  using Handler = std::function<std::string(std::string_view line)>;
  // Answers what the server itself has to say (a line too long, too many connections).
  using Complaint = std::function<std::string(const Status& status)>;

  virtual ~AdminServer() = default;  // Joins the thread and unlinks the path.

  // kUnavailable where another process listens on the path, kRefused where something else is there.
  static Result<std::unique_ptr<AdminServer>> start(AdminServerOptions options, Handler handler,
                                                    Complaint complaint);
};

}  // namespace changeover::reference
