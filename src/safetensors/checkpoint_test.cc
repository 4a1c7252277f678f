#include <changeover/checkpoint.h>

#include "safetensors/header.h"
#include "safetensors/test_folder.h"

namespace changeover::safetensors {
namespace {

class CheckpointTest : public TestFolder {
 protected:
  void put_shard(const std::string& name, const std::vector<std::string>& tensors,
                 const std::map<std::string, std::string>& metadata = {}) const {
    std::vector<TensorSpec> specs;
    std::string data;
    for (const std::string& tensor : tensors) {
      specs.push_back({tensor, DType::kU8, {2}});
      data += tensor.substr(0, 1) + "!";
    }
    put(name, *make_header(specs, metadata) + data);
  }
  void put_index(const std::string& map) const {
    put("model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
  }
  void expect_refused(const std::filesystem::path& path, std::string_view why,
                      Code code = Code::kCorrupt) const {
    const auto got = Checkpoint::open(path);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.status().code(), code);
    EXPECT_NE(got.status().message().find(why), std::string::npos) << got.status().message();
    EXPECT_NE(got.status().message().find(folder_.string()), std::string::npos)
        << "names no file: " << got.status().message();
  }
};

TEST_F(CheckpointTest, AFolderWithOneFile) {
  put_shard("model.safetensors", {"b", "a"});
  put("config.json", "{}");
  const auto got = Checkpoint::open(folder_);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ((*got)->specs()[0].name, "b");
  EXPECT_EQ((*got)->find("a"), 1u);
  EXPECT_EQ((*got)->find("c"), std::nullopt);
  EXPECT_EQ(static_cast<char>((*got)->view(1).data[0]), 'a');
  EXPECT_EQ((*got)->begin_update()->size(), 2u);
  EXPECT_EQ((*got)->read(0)->data, (*got)->view(0).data);
  EXPECT_TRUE((*got)->may_change());
  (*got)->end_update();
}

TEST_F(CheckpointTest, ShardsByFileNameWithMetadataMerged) {
  put_shard("x-2.safetensors", {"c"}, {{"format", "other"}, {"two", "2"}});
  put_shard("x-1.safetensors", {"b", "a"}, {{"format", "pt"}});
  put_shard("unrelated.safetensors", {"q"});
  put_index(R"({"a":"x-1.safetensors","c":"x-2.safetensors","b":"x-1.safetensors"})");
  for (const auto& path : {folder_, folder_ / "model.safetensors.index.json"}) {
    const auto got = Checkpoint::open(path);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    ASSERT_EQ((*got)->specs().size(), 3u);
    EXPECT_EQ((*got)->specs()[0].name, "b");
    EXPECT_EQ((*got)->specs()[2].name, "c");
    EXPECT_EQ((*got)->metadata(),
              (std::map<std::string, std::string>{{"format", "pt"}, {"two", "2"}}));
  }
}

TEST_F(CheckpointTest, OrderIsAPermutationOfTheNames) {
  put_shard("m.safetensors", {"a", "b", "c"});
  auto got = Checkpoint::open(folder_);
  ASSERT_TRUE(got.ok());
  Checkpoint& checkpoint = **got;
  const auto order = [&](std::vector<std::string> names) { return checkpoint.set_order(names); };
  EXPECT_NE(order({"a", "b"}).message().find("\"c\" is missing"), std::string::npos);
  EXPECT_NE(order({"a", "b", "b"}).message().find("\"b\" comes twice"), std::string::npos);
  EXPECT_NE(order({"a", "b", "x"}).message().find("no tensor \"x\""), std::string::npos);
  EXPECT_EQ(checkpoint.specs()[0].name, "a");
  ASSERT_TRUE(order({"c", "a", "b"}).ok());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(checkpoint.specs()[0].name, "c");
    EXPECT_EQ(checkpoint.find("b"), 2u);
    EXPECT_EQ(static_cast<char>(checkpoint.view(0).data[0]), 'c');
    ASSERT_TRUE(order({"c", "a", "b"}).ok());
  }
}

TEST_F(CheckpointTest, BadFoldersAreRefusedByName) {
  expect_refused(folder_, "no .safetensors file and no model.safetensors.index.json",
                 Code::kInvalidArgument);
  put_shard("a.safetensors", {"a"});
  put_shard("b.safetensors", {"a"});
  expect_refused(folder_, "2 .safetensors files and no", Code::kInvalidArgument);
  put_index(R"({"a":"a.safetensors","x":"b.safetensors"})");
  expect_refused(folder_, "b.safetensors: tensor \"a\" is in");
  put_index(R"({"a":"a.safetensors","x":"a.safetensors"})");
  expect_refused(folder_, "tensor \"x\" should be in a.safetensors but is nowhere");
  put_shard("b.safetensors", {"b", "extra"});
  put_index(R"({"a":"a.safetensors","b":"b.safetensors"})");
  expect_refused(folder_, "tensor \"extra\" is not in the index");
  put_index(R"({"a":"a.safetensors","b":"gone.safetensors"})");
  expect_refused(folder_, "gone.safetensors is missing");
}

TEST_F(CheckpointTest, AnIndexCannotLeadOutOfItsFolder) {
  for (const std::string shard :
       {"../a.safetensors", "/etc/a.safetensors", "x/a.safetensors", "a.bin", ".safetensors", ""}) {
    put_index("{\"a\":\"" + shard + "\"}");
    expect_refused(folder_, "not a plain NAME.safetensors");
  }
  put_index(R"({"a":7})");
  expect_refused(folder_, "not a plain NAME.safetensors");
  put_index("{}");
  expect_refused(folder_, "weight_map is empty");
  put("model.safetensors.index.json", "{}");
  expect_refused(folder_, "no object \"weight_map\"");
  put("model.safetensors.index.json", "{");
  expect_refused(folder_, "not valid JSON");
}

TEST_F(CheckpointTest, BadFilesAreRefusedByName) {
  put("zip.safetensors", std::string("PK\x03\x04\x14", 5) + std::string(20, 'z'));
  expect_refused(folder_ / "zip.safetensors", "zip.safetensors: not safetensors: this is a zip");
  put("empty.safetensors", "");
  expect_refused(folder_ / "empty.safetensors", "the file has 0 bytes");
  EXPECT_FALSE(Checkpoint::open(folder_ / "missing.safetensors").ok());
}

}  // namespace
}  // namespace changeover::safetensors
