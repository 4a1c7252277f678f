// Whether bytes are valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <string>
#include <string_view>

namespace changeover::base {

bool is_valid_utf8(std::string_view text);

// The text in double quotes for a message: control characters and bytes that are not UTF-8 as
// \xNN, at most `bytes_max` bytes of it (then "..."), so that a hostile name cannot spoil a log.
std::string quoted(std::string_view text, size_t bytes_max = 120);

}  // namespace changeover::base
