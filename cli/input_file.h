// A small file named on the command line.
#pragma once

#include <cstdint>
#include <string>

#include <changeover/status.h>

namespace changeover::cli {

inline constexpr uint64_t kInputBytesMax = 256 << 20;  // A plan of 100,000 tensors is 30 MB.

// The file's text; kInvalidArgument, naming it, where it cannot be read (a folder) or is
// longer than kInputBytesMax. A pipe (`--order <(...)`) is read too.
Result<std::string> read_input_file(const std::string& path);

}  // namespace changeover::cli
