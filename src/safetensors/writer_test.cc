#include <csignal>
#include <cstring>

#include <changeover/checkpoint.h>

#include <sys/resource.h>

#include "safetensors/test_folder.h"

namespace changeover::safetensors {
namespace {

using Writer = TestFolder;

const float kNumbers[] = {0, 1, 2, 3, 4, 5};

TensorView view(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  return {DType::kF32, std::move(shape), std::move(strides),
          reinterpret_cast<const std::byte*>(kNumbers)};
}

std::vector<float> floats(const Checkpoint& checkpoint, std::string_view name) {
  const auto index = checkpoint.find(name);
  EXPECT_TRUE(index.has_value()) << name;
  const TensorView tensor = checkpoint.view(*index);
  std::vector<float> values(static_cast<size_t>(*element_count(tensor.shape)));
  std::memcpy(values.data(), tensor.data, values.size() * sizeof(float));
  return values;
}

TEST_F(Writer, CaseB10_StridedTensorsAreWrittenByValueInTheOrderGiven) {
  const NamedTensor tensors[] = {{"t", view({3, 2}, {1, 3})},
                                 {"even", view({3}, {2})},
                                 {"none", view({0, 7})},
                                 {"one", view({})}};
  const auto path = folder_ / "a.safetensors";
  ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}}).ok());
  EXPECT_EQ(files(), 1u);
  const auto got = Checkpoint::open(path);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  ASSERT_EQ((*got)->specs().size(), 4u);
  EXPECT_EQ((*got)->specs()[0].name, "t");
  EXPECT_EQ((*got)->specs()[2].shape, (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(floats(**got, "t"), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(floats(**got, "even"), (std::vector<float>{0, 2, 4}));
  EXPECT_EQ(floats(**got, "one"), (std::vector<float>{0}));
  EXPECT_EQ((*got)->metadata().at("format"), "pt");
}

TEST_F(Writer, CaseB47_AMetadataOnlyFileRoundTrips) {
  ASSERT_TRUE(write_safetensors(folder_ / "m.safetensors", {}, {{"a", "b"}}).ok());
  const auto got = Checkpoint::open(folder_ / "m.safetensors");
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_TRUE((*got)->specs().empty());
  EXPECT_EQ((*got)->metadata().at("a"), "b");
}

TEST_F(Writer, ARefusalLeavesTheOldFileAndNothingElse) {
  put("a.safetensors", "old");
  const NamedTensor twice[] = {{"t", view({1})}, {"t", view({1})}};
  const Status status = write_safetensors(folder_ / "a.safetensors", twice, {});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("a.safetensors: tensor \"t\""), std::string::npos);
  const NamedTensor no_memory[] = {{"t", {DType::kF32, {1}, {}, nullptr}}};
  EXPECT_FALSE(write_safetensors(folder_ / "a.safetensors", no_memory, {}).ok());
  EXPECT_EQ(get("a.safetensors"), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Writer, NoRoomIsAPlainErrorAndLeavesTheOldFile) {
  put("a.safetensors", "old");
  const std::vector<std::byte> big(1 << 20);
  const NamedTensor tensors[] = {{"big", {DType::kU8, {1 << 20}, {}, big.data()}}};
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{64 << 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Status status = write_safetensors(folder_ / "a.safetensors", tensors, {});
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.code(), Code::kExhausted) << status.to_string();
  EXPECT_EQ(get("a.safetensors"), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Writer, ShardsAndIndexRoundTrip) {
  const NamedTensor tensors[] = {
      {"a", view({6})}, {"b", view({2})}, {"c", view({1})}, {"z", view({0})}, {"d", view({3})}};
  ASSERT_TRUE(write_sharded_safetensors(folder_, tensors, 12, {{"format", "pt"}}).ok());
  EXPECT_EQ(files(), 4u);
  const auto got = Checkpoint::open(folder_);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  std::string order;
  for (const TensorSpec& spec : (*got)->specs()) {
    order += spec.name;
  }
  EXPECT_EQ(order, "abczd");
  EXPECT_EQ(floats(**got, "d"), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ((*got)->metadata().at("format"), "pt");
  EXPECT_NE(get("model.safetensors.index.json").find("\"total_size\": 48"), std::string::npos);
}

TEST_F(Writer, ANewShardedCheckpointNeverMixesWithTheOldOne) {
  const NamedTensor old_tensors[] = {{"a", view({2})}, {"b", view({2})}};
  ASSERT_TRUE(write_sharded_safetensors(folder_, old_tensors, 8, {}).ok());
  const std::string old_index = get("model.safetensors.index.json");
  const NamedTensor new_tensors[] = {{"a", view({2}, {3})}, {"b", view({2}, {2})}};
  ASSERT_TRUE(write_sharded_safetensors(folder_, new_tensors, 8, {}).ok());
  EXPECT_EQ(floats(**Checkpoint::open(folder_), "a"), (std::vector<float>{0, 3}));
  // As if it had been killed before its last step: the old checkpoint is whole.
  put("model.safetensors.index.json", old_index);
  const auto old_one = Checkpoint::open(folder_);
  ASSERT_TRUE(old_one.ok()) << old_one.status().to_string();
  EXPECT_EQ(floats(**old_one, "a"), (std::vector<float>{0, 1}));
  EXPECT_EQ(floats(**old_one, "b"), (std::vector<float>{0, 1}));
}

TEST_F(Writer, ShardedRefusals) {
  EXPECT_EQ(write_sharded_safetensors(folder_, {}, 8, {}).code(), Code::kInvalidArgument);
  const NamedTensor twice[] = {{"t", view({2})}, {"t", view({2})}};
  EXPECT_EQ(write_sharded_safetensors(folder_, twice, 8, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace changeover::safetensors
