#include "tensor/spec.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace changeover {
namespace {

void expect_refused(const Status& status, std::string_view why) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
}

TEST(DType, NamesGoBothWaysAndAreUnique) {
  std::set<std::string_view> names;
  int on_the_wire = 0;
  int in_safetensors = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (const auto name = wire_dtype_name(dtype)) {
      ++on_the_wire;
      EXPECT_EQ(dtype_from_wire_name(*name), dtype);
    }
    if (const auto name = safetensors_dtype_name(dtype)) {
      ++in_safetensors;
      EXPECT_EQ(dtype_from_safetensors_name(*name), dtype);
    }
    EXPECT_FALSE(dtype_name(dtype).empty());
    EXPECT_TRUE(names.insert(dtype_name(dtype)).second);
  }
  EXPECT_EQ(on_the_wire, 18);
  EXPECT_EQ(in_safetensors, 20);
  EXPECT_EQ(dtype_from_wire_name("BF16"), std::nullopt);
  EXPECT_EQ(dtype_from_wire_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors_name("FOO"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors_name(""), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::kF6E2M3), 0);
  EXPECT_EQ(dtype_bits(DType::kF6E2M3), 6);
  EXPECT_EQ(dtype_bytes(DType::kC64), 8);
}

TEST(Spec, CaseB45_ElementCountIsChecked) {
  const auto count = [](std::vector<int64_t> shape) { return element_count(shape); };
  expect_refused(count({4294967296, 4294967296}).status(), "overflows");
  expect_refused(count({-1, 4}).status(), "dimension 0 is -1");
  expect_refused(count(std::vector<int64_t>(70, 1)).status(), "70 dimensions");
  expect_refused(count({INT64_MAX, 0, 3}).status(), "overflows");
  EXPECT_EQ(*count({0, 4}), 0);
  EXPECT_EQ(*count({}), 1);
  EXPECT_EQ(*count(std::vector<int64_t>(64, 1)), 1);
  EXPECT_EQ(*count({INT64_MAX}), INT64_MAX);
}

TEST(Spec, CaseB49_ByteCounts) {
  const auto bytes = [](DType dtype, std::vector<int64_t> shape) {
    return byte_count(dtype, shape);
  };
  EXPECT_EQ(*bytes(DType::kF8E8M0FNU, {4}), 4);
  EXPECT_EQ(*bytes(DType::kF8E4M3FN, {2, 3}), 6);
  EXPECT_EQ(*bytes(DType::kF4, {4}), 2);
  EXPECT_EQ(*bytes(DType::kF6E3M2, {4}), 3);
  EXPECT_EQ(*bytes(DType::kC64, {2}), 16);
  expect_refused(bytes(DType::kF4, {3}).status(), "12 bits, not a whole number of bytes");
  expect_refused(bytes(DType::kF64, {INT64_MAX / 4}).status(), "bytes of float64");
  expect_refused(bytes(DType::kF6E2M3, {INT64_MAX / 4}).status(), "bits of F6_E2M3");
}

TEST(Spec, ContiguityIgnoresSizeOneAndEmpty) {
  EXPECT_TRUE(is_contiguous({DType::kF32, {2, 3}, {}, nullptr}));
  EXPECT_TRUE(is_contiguous({DType::kF32, {2, 3}, {3, 1}, nullptr}));
  EXPECT_TRUE(is_contiguous({DType::kF32, {2, 1, 3}, {3, 99, 1}, nullptr}));
  EXPECT_TRUE(is_contiguous({DType::kF32, {0, 3}, {7, 7}, nullptr}));
  EXPECT_FALSE(is_contiguous({DType::kF32, {2, 3}, {1, 2}, nullptr}));
  EXPECT_FALSE(is_contiguous({DType::kF32, {2}, {0}, nullptr}));
  EXPECT_FALSE(is_contiguous({DType::kF32, {2}, {-1}, nullptr}));
  EXPECT_FALSE(is_contiguous({DType::kF32, {2, 3}, {1}, nullptr}));
}

TEST(Spec, W7_NamesAreChecked) {
  EXPECT_TRUE(tensor::check_name("model.layers.0.w").ok());
  EXPECT_TRUE(tensor::check_name("mod\xc3\xa8le").ok());
  EXPECT_TRUE(tensor::check_name(std::string(4096, 'x')).ok());
  expect_refused(tensor::check_name(""), "empty");
  expect_refused(tensor::check_name(std::string(4097, 'x')), "4097 bytes, at most 4096");
  expect_refused(tensor::check_name("\xff"), "not UTF-8");
  expect_refused(tensor::check_name(std::string_view("a\0b", 3)), "NUL");
}

}  // namespace
}  // namespace changeover
