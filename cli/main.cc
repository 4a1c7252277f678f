// The `changeover` command.
#include <csignal>
#include <variant>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/emit.h"

int main(int argc, char** argv) {
  changeover::cli::open_standard_streams();
  std::signal(SIGPIPE, SIG_IGN);  // A peer or a pager that goes away is an error, not an end.
  std::signal(SIGXFSZ, SIG_IGN);  // A file that outgrows its limit is "no room", with the numbers.
  const changeover::cli::Parsed parsed = changeover::cli::parse_arguments(argc, argv);
  if (!parsed.command) {
    return changeover::cli::finish(parsed.exit_code);
  }
  return changeover::cli::finish(std::visit(
      [](const auto& arguments) { return changeover::cli::run(arguments); }, *parsed.command));
}
