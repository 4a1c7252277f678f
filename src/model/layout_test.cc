// The dense families against two references: the names and shapes that transformers writes, and
// the engine's layout written down a second time, by rows and columns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_fixture.h"
#include "model/names.h"

namespace changeover::model {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  Numbers data;
};

Matrix rows(const Matrix& m, int64_t from, int64_t count) {
  const auto begin = m.data.begin() + from * m.columns;
  return {count, m.columns, Numbers(begin, begin + count * m.columns)};
}

Matrix columns(const Matrix& m, int64_t from, int64_t count) {
  Matrix result{m.rows, count, {}};
  for (int64_t r = 0; r < m.rows; ++r) {
    const auto begin = m.data.begin() + r * m.columns + from;
    result.data.insert(result.data.end(), begin, begin + count);
  }
  return result;
}

Matrix stack(std::initializer_list<Matrix> parts) {
  Matrix result{0, parts.begin()->columns, {}};
  for (const Matrix& part : parts) {
    result.rows += part.rows;
    result.data.insert(result.data.end(), part.data.begin(), part.data.end());
  }
  return result;
}

// What a rank of the engine holds, from the full tensors.
class EngineLayout {
 public:
  EngineLayout(const FixtureCase& fixture, const std::map<std::string, Numbers>& full, int32_t rank,
               int32_t size)
      : fixture_(fixture), full_(full), rank_(rank), size_(size) {}

  Numbers parameter(const std::string& name) const {
    const size_t dot = name.rfind('.');
    const size_t before = name.rfind('.', dot - 1);
    const std::string layer = name.substr(0, before + 1);
    const std::string module = name.substr(before + 1, dot - before - 1);
    const std::string kind = name.substr(dot);
    if (module == "qkv_proj") {
      return stack({heads(layer + "q_proj" + kind, config("num_attention_heads")),
                    heads(layer + "k_proj" + kind, config("num_key_value_heads")),
                    heads(layer + "v_proj" + kind, config("num_key_value_heads"))})
          .data;
    }
    if (module == "gate_up_proj") {
      return stack({row_share(tensor(layer + "gate_proj" + kind)),
                    row_share(tensor(layer + "up_proj" + kind))})
          .data;
    }
    const Matrix whole = tensor(name);
    if (module == "o_proj" || module == "down_proj") {
      if (kind == ".bias") {
        return rank_ == 0 ? whole.data : Numbers(whole.data.size(), kPaddingValue);
      }
      return columns(whole, whole.columns / size_ * rank_, whole.columns / size_).data;
    }
    return module == "embed_tokens" || module == "lm_head" ? vocabulary(whole) : whole.data;
  }

 private:
  int64_t config(const std::string& key) const { return fixture_.config.at(key); }

  Matrix tensor(const std::string& name) const {
    const std::vector<int64_t>& shape = fixture_.tensors.at(name).shape;
    return {shape[0], shape.size() > 1 ? shape[1] : 1, full_.at(name)};
  }

  Matrix row_share(const Matrix& m) const {
    return rows(m, m.rows / size_ * rank_, m.rows / size_);
  }

  Matrix heads(const std::string& name, int64_t count) const {
    const Matrix whole = tensor(name);
    const int64_t head = whole.rows / count;
    if (count >= size_) {
      return row_share(whole);
    }
    return rows(whole, rank_ / (size_ / count) * head, head);
  }

  Numbers vocabulary(const Matrix& whole) const {
    const int64_t multiple = size_ == 3 ? 192 : 64;  // A multiple of 64 and of tp.
    const int64_t padded = (whole.rows + multiple - 1) / multiple * multiple;
    Matrix all = whole;
    all.data.resize(static_cast<size_t>(padded * whole.columns), kPaddingValue);
    return rows(all, padded / size_ * rank_, padded / size_).data;
  }

  const FixtureCase& fixture_;
  const std::map<std::string, Numbers>& full_;
  int64_t rank_;
  int64_t size_;
};

bool divides(const FixtureCase& fixture, int32_t size) {
  const int64_t kv = fixture.config.at("num_key_value_heads");
  return kv % size == 0 || size % kv == 0;
}

class DenseFamily : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, DenseFamily, ::testing::Values("llama", "mistral", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DenseFamily, T4_SourcesAreWhatTransformersWrites) {
  for (const FixtureCase& fixture : fixture_cases(GetParam())) {
    const auto plan = plan_of(fixture.config, rank_of(0, 1));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    std::map<std::string, TensorSpec> sources;
    for (const Source& source : plan->sources) {
      sources[source.spec.name] = source.spec;
    }
    EXPECT_EQ(sources, fixture.tensors) << fixture.config;
  }
}

TEST_P(DenseFamily, T4_EveryRankHoldsTheEngineLayout) {
  int checked = 0;
  for (const FixtureCase& fixture : fixture_cases(GetParam())) {
    const std::map<std::string, Numbers> full = numbered(fixture.tensors);
    for (const int32_t size : {1, 2, 3, 4}) {
      for (int32_t rank = 0; rank < size && divides(fixture, size); ++rank) {
        SCOPED_TRACE(fixture.config.dump() + " rank " + std::to_string(rank) + " of " +
                     std::to_string(size));
        const auto plan = plan_of(fixture.config, rank_of(rank, size));
        ASSERT_TRUE(plan.ok()) << plan.status().to_string();
        EXPECT_TRUE(prove_load_plan(*plan).ok()) << prove_load_plan(*plan).to_string();
        const EngineLayout expected(fixture, full, rank, size);
        for (const auto& [name, numbers] : interpret(*plan, full)) {
          EXPECT_EQ(numbers, expected.parameter(name)) << name;
        }
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 8);
}

// Every element of every source lies in some rank, so the ranks together rebuild each tensor.
TEST_P(DenseFamily, T4_TheRanksTogetherHoldEveryElement) {
  for (const FixtureCase& fixture : fixture_cases(GetParam())) {
    const std::map<std::string, Numbers> full = numbered(fixture.tensors);
    for (const int32_t size : {1, 2, 3, 4}) {
      std::map<std::string, std::vector<bool>> seen;
      for (int32_t rank = 0; rank < size && divides(fixture, size); ++rank) {
        const auto plan = plan_of(fixture.config, rank_of(rank, size));
        ASSERT_TRUE(plan.ok());
        for (const Piece& piece : plan->pieces) {
          const std::string& name = plan->sources[piece.source].spec.name;
          seen[name].resize(full.at(name).size());
          for (const int64_t at : elements(piece.source_view)) {
            seen[name][static_cast<size_t>(at)] = true;
          }
        }
      }
      for (const auto& [name, numbers] : seen) {
        EXPECT_EQ(std::count(numbers.begin(), numbers.end(), false), 0) << name << " of " << size;
      }
    }
  }
}

TEST(GroupedQueryAttention, CaseB11_KeyValueHeadsAreReplicatedWhereRanksOutnumberThem) {
  FixtureCase fixture = fixture_cases("llama")[0];
  fixture.config["num_attention_heads"] = 8;
  fixture.config["num_key_value_heads"] = 2;
  fixture.config["head_dim"] = 2;
  for (int32_t rank = 0; rank < 4; ++rank) {
    const auto plan = plan_of(fixture.config, rank_of(rank, 4));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const int64_t hidden = fixture.config["hidden_size"];
    for (const Piece& piece : plan->pieces) {
      const int64_t row = piece.source_view.offset / hidden;
      if (piece.part == "q") {
        EXPECT_EQ(row, rank * 4);
      } else if (piece.part == "k" || piece.part == "v") {
        EXPECT_EQ(row, rank < 2 ? 0 : 2);  // Ranks 0, 1: head 0; ranks 2, 3: head 1.
        EXPECT_THAT(piece.source_view.dims, ElementsAre(View::Dim{2 * hidden, 1}));
      }
    }
  }
}

TEST(TiedEmbeddings, CaseB16_TheHeadIsAnAliasWhereTheConfigTiesIt) {
  const FixtureCase fixture = fixture_cases("llama")[1];
  ASSERT_TRUE(fixture.config["tie_word_embeddings"]);
  const auto plan = plan_of(fixture.config, rank_of(0, 1));
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->sources[0].aliases, ElementsAre("lm_head.weight"));
  for (const TensorSpec& parameter : plan->parameters) {
    EXPECT_NE(parameter.name, "lm_head.weight");
  }
  const auto resolver = NameResolver::make(*plan);
  ASSERT_TRUE(resolver.ok());
  // (a) the embedding alone, (b) both: full coverage; neither is "0 of N".
  std::vector<std::string> offered;
  for (const Source& source : plan->sources) {
    offered.push_back(source.spec.name);
  }
  EXPECT_TRUE(resolver->compare(offered).to_status().ok());
  offered.push_back("lm_head.weight");
  EXPECT_TRUE(resolver->compare(offered).to_status().ok());
  // The head alone stands for both.
  offered.erase(offered.begin());
  EXPECT_TRUE(resolver->compare(offered).to_status().ok());
  // A nested head is another tensor, never skipped.
  offered.push_back("mtp.lm_head.weight");
  EXPECT_THAT(resolver->compare(offered).unmatched, ElementsAre("mtp.lm_head.weight"));
}

TEST(TiedEmbeddings, CaseB16_AnUntiedHeadIsItsOwnTensorAndListedAsMissing) {
  const FixtureCase fixture = fixture_cases("llama")[0];
  const auto plan = plan_of(fixture.config, rank_of(0, 1));
  ASSERT_TRUE(plan.ok());
  const auto resolver = NameResolver::make(*plan);
  std::vector<std::string> offered;
  for (const Source& source : plan->sources) {
    EXPECT_TRUE(source.aliases.empty());
    if (source.spec.name != "lm_head.weight") {
      offered.push_back(source.spec.name);
    }
  }
  EXPECT_THAT(resolver->compare(offered).missing, ElementsAre("lm_head.weight"));
}

TEST(RowBias, RanksOtherThanTheFirstHoldZerosAndIgnoreTheSource) {
  const FixtureCase fixture = fixture_cases("llama")[2];
  const auto plan = plan_of(fixture.config, rank_of(1, 2));
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->ignorable, Contains("model.layers.1.self_attn.o_proj.bias"));
  EXPECT_THAT(plan->ignorable, Contains("model.layers.1.mlp.down_proj.bias"));
  for (const Source& source : plan->sources) {
    EXPECT_NE(source.spec.name, "model.layers.1.self_attn.o_proj.bias");
  }
}

TEST(Vocabulary, PaddingIsConfigurableAndMayFillWholeRanks) {
  const FixtureCase fixture = fixture_cases("llama")[0];  // 101 rows
  PlanOptions options = rank_of(3, 4);
  options.vocab_multiple = 1;
  auto plan = plan_of(fixture.config, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->parameters[0].shape, ElementsAre(26, 132));  // 104 = 4 x 26
  options.vocab_multiple = 512;
  plan = plan_of(fixture.config, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->parameters[0].shape, ElementsAre(128, 132));
  EXPECT_THAT(plan->ignorable, Contains("model.embed_tokens.weight"));
  EXPECT_TRUE(prove_load_plan(*plan).ok()) << prove_load_plan(*plan).to_string();
}

}  // namespace
}  // namespace changeover::model
