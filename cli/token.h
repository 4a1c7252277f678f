// The shared secret: from a file only its owner can read, or from the environment. Never from the
// command line, which every user of the host can see.
#pragma once

#include <string>

#include <changeover/status.h>

namespace changeover::cli {

// `token_file` if not empty, else $CHANGEOVER_TOKEN, else an empty token. kRefused where others can
// read the file, kInvalidArgument where it cannot be read or holds no token.
Result<std::string> read_token(const std::string& token_file);

}  // namespace changeover::cli
