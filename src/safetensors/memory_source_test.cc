#include <changeover/source.h>

#include <gtest/gtest.h>

namespace changeover {
namespace {

const std::byte kData[16] = {};

TEST(MemorySource, HandsOutWhatItWasGiven) {
  auto source = make_memory_source(
      {{"b", {DType::kU8, {4}, {2}, kData}}, {"a", {DType::kF32, {0}, {}, nullptr}}}, true);
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  const auto specs = (*source)->begin_update();
  ASSERT_TRUE(specs.ok());
  ASSERT_EQ(specs->size(), 2u);
  EXPECT_EQ((*specs)[0], (TensorSpec{"b", DType::kU8, {4}}));
  EXPECT_EQ((*source)->read(0)->strides, (std::vector<int64_t>{2}));
  EXPECT_TRUE((*source)->may_change());
  (*source)->end_update();
  EXPECT_FALSE((*make_memory_source({}, false))->may_change());
}

TEST(MemorySource, RefusesByName) {
  const auto refuse = [](std::vector<NamedTensor> tensors, std::string_view why) {
    const auto source = make_memory_source(std::move(tensors), false);
    ASSERT_FALSE(source.ok());
    EXPECT_EQ(source.status().code(), Code::kInvalidArgument);
    EXPECT_NE(source.status().message().find(why), std::string::npos) << source.status().message();
  };
  const TensorView good{DType::kU8, {4}, {}, kData};
  refuse({{"a", good}, {"b", good}, {"a", good}}, "tensor \"a\": the name comes twice");
  refuse({{"", good}}, "empty");
  refuse({{"a", {DType::kF4, {4}, {}, kData}}}, "tensor \"a\": dtype F4 has no name on the wire");
  refuse({{"a", {DType::kU8, {INT64_MAX, 3}, {}, kData}}}, "tensor \"a\": the number of elements");
  refuse({{"a", {DType::kU8, {4}, {}, nullptr}}}, "has no memory");
}

}  // namespace
}  // namespace changeover
