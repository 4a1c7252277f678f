// Messages of the control channel to bytes and back (proto/control.proto).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/status.h>

#include "protocol/messages.h"

namespace changeover::control {

using protocol::kCapabilitiesMax;
using protocol::kEngineSizeMax;
using protocol::kNameBytesMax;
using protocol::kTextBytesMax;

// Longer texts are cut at a character, never refused: an error must always get through.
std::vector<uint8_t> encode(const protocol::Message& message);

// kCorrupt names the message and the field: bytes that are no message, a type that this release
// does not know, a digest that is not 16 bytes, a number outside its range, a text too long.
Result<protocol::Message> decode(std::span<const uint8_t> bytes);

// For messages: "hello", "begin", ...
std::string_view message_name(const protocol::Message& message);

}  // namespace changeover::control
