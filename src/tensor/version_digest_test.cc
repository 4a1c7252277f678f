#include "tensor/version_digest.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/digest.h"

namespace changeover::tensor {
namespace {

Digest digest_of(std::string_view text) {
  return base::digest(std::as_bytes(std::span(text)));
}

const TensorSpec kA{"a", DType::kF32, {2, 3}};
const TensorSpec kB{"b", DType::kBF16, {}};
const TensorSpec kLate{"\xc3\xa9", DType::kU8, {0}};

TEST(VersionDigest, ByTheLayoutOfTheProtocolInAnyOrder) {
  // Spelled out by hand, sorted by name bytes.
  std::string wanted;
  const auto add = [&](std::string_view name, std::string_view dtype, std::vector<char> dims,
                       const Digest& digest) {
    wanted += std::string{static_cast<char>(name.size()), 0, 0, 0} + std::string(name);
    wanted += std::string{static_cast<char>(dtype.size()), 0, 0, 0} + std::string(dtype);
    wanted += std::string{static_cast<char>(dims.size()), 0, 0, 0};
    for (const char dim : dims) {
      wanted += std::string{dim, 0, 0, 0, 0, 0, 0, 0};
    }
    wanted.append(reinterpret_cast<const char*>(digest.bytes.data()), 16);
  };
  add("a", "float32", {2, 3}, digest_of("1"));
  add("b", "bfloat16", {}, digest_of("2"));
  add("\xc3\xa9", "uint8", {0}, digest_of(""));

  VersionDigester one;
  one.add(kLate, digest_of(""));
  one.add(kB, digest_of("2"));
  one.add(kA, digest_of("1"));
  EXPECT_EQ(one.finish(), digest_of(wanted));
  EXPECT_EQ(one.tensors(), 3u);

  VersionDigester two;
  two.add(kB, digest_of("2"));
  two.add(kA, digest_of("1"));
  two.add(kLate, digest_of(""));
  EXPECT_EQ(two.finish(), one.finish());
}

TEST(VersionDigest, EveryPartCounts) {
  const auto digest = [](const TensorSpec& spec, std::string_view content) {
    VersionDigester digester;
    digester.add(spec, digest_of(content));
    return digester.finish();
  };
  const Digest base = digest(kA, "1");
  EXPECT_NE(digest(kA, "2"), base);
  EXPECT_NE(digest({"a", DType::kF32, {3, 2}}, "1"), base);
  EXPECT_NE(digest({"a", DType::kI32, {2, 3}}, "1"), base);
  EXPECT_NE(digest({"A", DType::kF32, {2, 3}}, "1"), base);
}

TEST(VersionDigest, ClearStartsAgain) {
  VersionDigester digester;
  digester.add(kA, digest_of("1"));
  digester.clear();
  EXPECT_EQ(digester.finish(), digest_of(""));
  digester.add(kB, digest_of("2"));
  VersionDigester fresh;
  fresh.add(kB, digest_of("2"));
  EXPECT_EQ(digester.finish(), fresh.finish());
}

}  // namespace
}  // namespace changeover::tensor
