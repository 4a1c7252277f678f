// Uses the installed library the way a stranger would: public headers, one target, nothing else.
#include <cstdio>

#include <changeover/endpoint.h>
#include <changeover/load_plan.h>
#include <changeover/status.h>

int main() {
  const changeover::Status status(changeover::Code::kDeadline, "waited 10 s for engine-a/1");
  std::printf("%s\n", status.to_string().c_str());
  return status.to_string() == "deadline: waited 10 s for engine-a/1" ? 0 : 1;
}
