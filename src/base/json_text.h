// Writing JSON strings, for the few writers that make JSON by hand.
#pragma once

#include <string>
#include <string_view>

namespace changeover::base {

// Appends `text` (valid UTF-8, kept as it is) in quotes, with what JSON wants escaped.
void append_json_string(std::string& out, std::string_view text);

}  // namespace changeover::base
