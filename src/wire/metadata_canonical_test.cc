#include "wire/metadata_canonical.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "wire/metadata.h"

namespace changeover::wire {
namespace {

std::vector<TensorSpec> specs() {
  std::vector<TensorSpec> all = {
      {"model.layers.0.mlp.experts.12.gate_proj.weight", DType::kBF16, {96, 256}},
      {"scalar", DType::kF32, {}},
      {"none", DType::kF32, {3, 0}},
      {std::string("del\x7f/~ !"), DType::kI8, {1, 1, 7}},
      {std::string(kTensorNameBytesMax, 'x'), DType::kU8, {2}},
      {"deep", DType::kBool, std::vector<int64_t>(kTensorDimsMax, 1)}};
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (wire_dtype_name(dtype)) {
      all.push_back({"dtype." + std::to_string(i), dtype, {8}});
    }
  }
  return all;
}

uint64_t payload_of(const std::vector<TensorSpec>& tensors) {
  uint64_t bytes = 0;
  for (const TensorSpec& spec : tensors) {
    bytes += static_cast<uint64_t>(*byte_count(spec.dtype, spec.shape));
  }
  return bytes;
}

std::string text_of(const std::vector<TensorSpec>& tensors) {
  std::string text;
  EXPECT_TRUE(encode_metadata(tensors, text).ok());
  return text;
}

// White space sends a text to the strict reader, which is the reference.
Result<std::vector<Entry>> strict(const std::string& text, uint64_t payload_bytes) {
  const std::string spaced = " " + text;
  return decode_metadata(std::as_bytes(std::span(spaced)), payload_bytes);
}

TEST(MetadataCanonical, W2_ReadsWhatIsWrittenAsTheStrictReaderDoes) {
  const auto tensors = specs();
  const std::string text = text_of(tensors);
  std::vector<Entry> entries;
  NameTable names;
  ASSERT_TRUE(read_canonical(text, payload_of(tensors), entries, names));
  const auto reference = strict(text, payload_of(tensors));
  ASSERT_TRUE(reference.ok()) << reference.status().to_string();
  EXPECT_EQ(entries, *reference);
}

TEST(MetadataCanonical, W7_TakesNothingThatTheStrictReaderRefuses) {
  auto tensors = specs();
  tensors.erase(tensors.begin() + 4);  // Its 4,096 bytes of name say little.
  const std::string text = text_of(tensors);
  const uint64_t payload_bytes = payload_of(tensors);
  std::vector<Entry> entries;
  NameTable names;
  base::Prng prng(7);
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string changed = text;
    const size_t at = prng.next() % changed.size();
    const std::string_view alphabet = "0123456789[]{},:\"\\-+. xaeE\x01\x7f\x80\xc3";
    switch (prng.next() % 3) {
      case 0:
        changed[at] = alphabet[prng.next() % alphabet.size()];
        break;
      case 1:
        changed.erase(at, 1 + prng.next() % 4);
        break;
      default:
        changed.insert(at, 1, alphabet[prng.next() % alphabet.size()]);
    }
    if (read_canonical(changed, payload_bytes, entries, names)) {
      const auto reference = strict(changed, payload_bytes);
      ASSERT_TRUE(reference.ok()) << changed << "\n" << reference.status().to_string();
      ASSERT_EQ(entries, *reference) << changed;
      ++taken;
    }
  }
  EXPECT_GT(taken, 100);  // A letter of a name, mostly.
}

TEST(MetadataCanonical, W7_LeavesWhatBreaksARuleToTheStrictReader) {
  const auto refuses = [](const std::string& text, uint64_t payload_bytes) {
    std::vector<Entry> entries;
    NameTable names;
    return !read_canonical(text, payload_bytes, entries, names);
  };
  const std::string one = R"({"name":"a","shape":[4],"dtype":"uint8","offset":0,"nbytes":4})";
  const std::string two = R"({"name":"b","shape":[4],"dtype":"uint8","offset":4,"nbytes":4})";
  const std::string again = R"({"name":"a","shape":[4],"dtype":"uint8","offset":4,"nbytes":4})";
  ASSERT_FALSE(refuses("[" + one + "," + two + "]", 8));
  EXPECT_TRUE(refuses("[" + one + "," + again + "]", 8)) << "a name twice";
  EXPECT_TRUE(refuses("[" + one + "," + one + "]", 8)) << "an overlap";
  EXPECT_TRUE(refuses("[" + two + "]", 8)) << "a gap";
  EXPECT_TRUE(refuses("[" + one + "]", 3));
  EXPECT_TRUE(refuses("[" + one + "]", 5));
  EXPECT_TRUE(refuses("[" + one + "]x", 4));
  EXPECT_TRUE(refuses("[" + one + ",]", 4));
  EXPECT_TRUE(refuses("[" + one, 4));
  EXPECT_TRUE(refuses("[]", 0));
  EXPECT_TRUE(refuses("", 0));
  EXPECT_TRUE(refuses(R"([{"name":"a","shape":[04],"dtype":"uint8","offset":0,"nbytes":4}])", 4));
  EXPECT_TRUE(refuses(R"([{"name":"a","shape":[9223372036854775808],"dtype":"uint8","offset":0,)"
                      R"("nbytes":9223372036854775808}])",
                      4));
  EXPECT_TRUE(refuses(R"([{"name":"","shape":[4],"dtype":"uint8","offset":0,"nbytes":4}])", 4));
  EXPECT_TRUE(refuses(R"([{"name":"a","shape":[4],"dtype":"u","offset":0,"nbytes":4}])", 4));
  std::string long_name = one;
  long_name.replace(9, 1, std::string(kTensorNameBytesMax + 1, 'x'));
  EXPECT_TRUE(refuses("[" + long_name + "]", 4));
}

TEST(MetadataDecoder, KeepsItsMemoryFromFrameToFrame) {
  const auto tensors = specs();
  const std::string text = text_of(tensors);
  MetadataDecoder decoder;
  const auto bytes = std::as_bytes(std::span(text));
  const auto first = decoder.decode(bytes, payload_of(tensors));
  ASSERT_TRUE(first.ok());
  const Entry* const entries = first->data();
  const char* const name = entries[0].spec.name.data();
  const int64_t* const shape = entries[0].spec.shape.data();
  const auto second = decoder.decode(bytes, payload_of(tensors));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->data(), entries);
  EXPECT_EQ(entries[0].spec.name.data(), name);
  EXPECT_EQ(entries[0].spec.shape.data(), shape);
}

TEST(MetadataDecoder, TakesFewerTensorsAndOtherFormsAfterMany) {
  const auto tensors = specs();
  const std::string many = text_of(tensors);
  const std::string one = R"([{"name":"a","shape":[4],"dtype":"uint8","offset":0,"nbytes":4}])";
  MetadataDecoder decoder;
  for (const std::string& next : {one, " " + one, one}) {
    ASSERT_TRUE(decoder.decode(std::as_bytes(std::span(many)), payload_of(tensors)).ok());
    const auto got = decoder.decode(std::as_bytes(std::span(next)), 4);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    ASSERT_EQ(got->size(), 1u);
    EXPECT_EQ((*got)[0], (Entry{{"a", DType::kU8, {4}}, 0, 4}));
  }
}

}  // namespace
}  // namespace changeover::wire
