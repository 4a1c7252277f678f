// Any bytes, in any cut, into a receiver over a real transaction: nothing but a whole, checked
// stream is ever taken for a version, and what is left can always take the next update.
#include <algorithm>
#include <cstdint>

#include "protocol/stream_testing.h"
#include "protocol/transaction_sink.h"

using namespace changeover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const size_t run_bytes = 1 + data[0];
  const std::span stream(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  update::testing::ToyRank rank;
  update::Transaction& transaction = *rank.transaction;
  const auto before = rank.memory.bytes();
  if (transaction.begin({0, 7}, {}, false).kind != update::BeginKind::kReady) {
    __builtin_trap();
  }
  protocol::TransactionSink sink(transaction);
  protocol::StreamReceiverOptions options;
  options.version = 7;
  options.payload_bytes_max = 1 << 16;
  options.metadata_bytes_max = 1 << 16;
  protocol::StreamReceiver receiver(options, sink);
  protocol::testing::feed(receiver, stream, run_bytes);
  const bool whole = receiver.done() && receiver.result().ok();
  if (whole && transaction.prepare({}).ok()) {
    const RankReport report = transaction.report();
    if (report.pieces_landed != report.pieces_expected) {
      __builtin_trap();
    }
    return 0;
  }
  transaction.abort({Code::kAborted, "not whole"}, false);
  if (rank.memory.bytes() != before ||
      transaction.begin({0, 7}, {}, false).kind != update::BeginKind::kReady) {
    __builtin_trap();
  }
  return 0;
}
