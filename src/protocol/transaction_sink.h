// Frames of a stream into the rank's transaction.
#pragma once

#include <span>

#include "protocol/stream_receiver.h"
#include "update/transaction.h"

namespace changeover::protocol {

class TransactionSink final : public FrameSink {
 public:
  explicit TransactionSink(update::Transaction& transaction) : transaction_(transaction) {}

  Status on_frame(std::span<const update::FrameTensor> tensors) override {
    return transaction_.on_frame(tensors);
  }
  Status on_payload(uint64_t payload_offset, std::span<const std::byte> bytes) override {
    return transaction_.apply(payload_offset, bytes);
  }
  Status on_end() override { return transaction_.end_of_stream(); }

 private:
  update::Transaction& transaction_;
};

}  // namespace changeover::protocol
