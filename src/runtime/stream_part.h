#pragma once

#include "protocol/stream_receiver.h"
#include "transport/transport.h"

namespace changeover::runtime {

// The road's word for a part of the stream.
inline transport::Part part_of(protocol::StreamPart part) {
  switch (part) {
    case protocol::StreamPart::kHeader:
      return transport::Part::kHeader;
    case protocol::StreamPart::kMetadata:
      return transport::Part::kMetadata;
    default:
      return transport::Part::kPayload;
  }
}

}  // namespace changeover::runtime
