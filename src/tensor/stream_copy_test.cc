#include "tensor/stream_copy.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace changeover::tensor {
namespace {

// Every alignment of either side against a cache line, every length around one; nothing beside it.
TEST(StreamCopy, EveryAlignmentAndLength) {
  std::vector<std::byte> from(512);
  base::Prng(7).fill(from);
  for (size_t in = 0; in < 64; in += 7) {
    for (size_t out = 0; out < 64; ++out) {
      for (size_t bytes = 0; bytes < 260; bytes += bytes < 130 ? 1 : 13) {
        std::vector<std::byte> to(512, std::byte{0xa5});
        std::vector<std::byte> expected = to;
        std::copy_n(from.begin() + static_cast<long>(in), bytes,
                    expected.begin() + static_cast<long>(out));
        stream_copy(to.data() + out, from.data() + in, bytes);
        ASSERT_EQ(to, expected) << in << " " << out << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace changeover::tensor
