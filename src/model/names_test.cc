#include "model/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace changeover::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LoadPlan plan_with(std::vector<std::string> sources) {
  LoadPlan plan;
  for (std::string& name : sources) {
    plan.sources.push_back({{std::move(name), DType::kBF16, {2}}, {}});
  }
  return plan;
}

NameResolver resolver_of(const LoadPlan& plan) {
  auto resolver = NameResolver::make(plan);
  EXPECT_TRUE(resolver.ok()) << resolver.status().to_string();
  return resolver.ok() ? std::move(resolver).take() : NameResolver();
}

LoadPlan wrapped_plan() {
  LoadPlan plan = plan_with({"language_model.model.layers.0.w", "language_model.my_orig_mod_x.w"});
  plan.drop_segments = {"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"};
  plan.strip_prefixes = {"base_model.model", "base_model"};
  plan.add_prefix = "language_model.";
  return plan;
}

TEST(NameResolver, CaseB17_EveryWrapperIsStrippedByTheDeclaredRule) {
  const NameResolver resolver = resolver_of(wrapped_plan());
  for (const char* name :
       {"model.layers.0.w", "base_model.model.model.layers.0.w",
        "_fsdp_wrapped_module.model.layers._fsdp_wrapped_module.0.w",
        "_orig_mod.model.layers.0._checkpoint_wrapped_module.w",
        "_fsdp_wrapped_module.base_model.model.model.layers.0.w", "model.layers.0.w._orig_mod"}) {
    const NameMatch found = resolver.match(name);
    EXPECT_EQ(found.kind, NameMatch::Kind::kSource) << name;
    EXPECT_EQ(found.source, 0u) << name;
  }
  EXPECT_EQ(resolver.match("model.layers.0.w.").kind, NameMatch::Kind::kUnmatched);
}

TEST(NameResolver, CaseB17_OnlyWholeSegmentsAreStripped) {
  const NameResolver resolver = resolver_of(wrapped_plan());
  EXPECT_EQ(resolver.match("my_orig_mod_x.w").source, 1u);
  EXPECT_EQ(resolver.match("my_orig_mod_x.w").kind, NameMatch::Kind::kSource);
  EXPECT_EQ(resolver.match("my_x.w").kind, NameMatch::Kind::kUnmatched);
  EXPECT_EQ(resolver.match("base_modelmodel.layers.0.w").kind, NameMatch::Kind::kUnmatched);
}

TEST(NameResolver, CaseB17_WithoutARuleBothSidesAreListed) {
  const NameResolver resolver = resolver_of(plan_with({"language_model.model.layers.0.w"}));
  const std::vector<std::string> offered = {"model.layers.0.w"};
  const NameReport report = resolver.compare(offered);
  EXPECT_THAT(report.unmatched, ElementsAre("model.layers.0.w"));
  EXPECT_THAT(report.missing, ElementsAre("language_model.model.layers.0.w"));
  const Status status = report.to_status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("0 of 1"));
  EXPECT_THAT(status.message(), HasSubstr("not wanted (1): model.layers.0.w"));
  EXPECT_THAT(status.message(), HasSubstr("not offered (1): language_model.model.layers.0.w"));
}

TEST(NameResolver, CaseB17_TwoNamesEqualAfterStrippingCollide) {
  const NameResolver resolver = resolver_of(wrapped_plan());
  const std::vector<std::string> offered = {"model.layers.0.w", "_orig_mod.model.layers.0.w",
                                            "my_orig_mod_x.w"};
  const NameReport report = resolver.compare(offered);
  ASSERT_EQ(report.collisions.size(), 1u);
  EXPECT_THAT(report.collisions[0], HasSubstr("\"_orig_mod.model.layers.0.w\""));
  EXPECT_FALSE(report.to_status().ok());
  EXPECT_EQ(resolver.match(offered[0]).name_index, resolver.match(offered[1]).name_index);
  EXPECT_THAT(NameResolver::collision("a", "_orig_mod.a").message(),
              HasSubstr("two names equal after stripping"));
}

TEST(NameResolver, CaseB17_ZeroOfNIsNeverSuccess) {
  const std::vector<std::string> none;
  EXPECT_FALSE(resolver_of(plan_with({"a"})).compare(none).to_status().ok());
  EXPECT_FALSE(resolver_of(plan_with({})).compare(none).to_status().ok());
  LoadPlan plan = plan_with({"a"});
  plan.ignorable = {"b"};
  const std::vector<std::string> ignorable_only = {"b"};
  EXPECT_FALSE(resolver_of(plan).compare(ignorable_only).to_status().ok());
}

TEST(NameResolver, CaseB17_RulesThatHideASourceAreRefused) {
  LoadPlan plan = plan_with({"model.w"});
  plan.add_prefix = "language_model";
  EXPECT_THAT(NameResolver::make(plan).status().message(), HasSubstr("can never match"));
  plan.add_prefix = "";
  plan.drop_segments = {"model"};
  EXPECT_THAT(NameResolver::make(plan).status().message(), HasSubstr("can never match"));
  for (const char* bad : {"", ".", ".a", "a..b", "a.b"}) {
    plan.drop_segments = {bad};
    EXPECT_FALSE(NameResolver::make(plan).ok()) << bad;
  }
}

TEST(NameResolver, CaseB16_ANestedHeadIsNotAnAliasOfTheHead) {
  LoadPlan plan = plan_with({"model.embed_tokens.weight"});
  plan.sources[0].aliases = {"lm_head.weight"};
  const NameResolver resolver = resolver_of(plan);
  EXPECT_EQ(resolver.name_count(), 2u);
  const NameMatch own = resolver.match("model.embed_tokens.weight");
  const NameMatch head = resolver.match("lm_head.weight");
  EXPECT_FALSE(own.alias);
  EXPECT_TRUE(head.alias);
  EXPECT_EQ(head.source, own.source);
  EXPECT_NE(head.name_index, own.name_index);
  EXPECT_EQ(resolver.match("mtp.lm_head.weight").kind, NameMatch::Kind::kUnmatched);
  // Both names in one update are no collision: the update compares their bytes (rule T4).
  const std::vector<std::string> both = {"model.embed_tokens.weight", "lm_head.weight"};
  EXPECT_TRUE(resolver.compare(both).to_status().ok());
}

TEST(NameResolver, AliasEqualToASourceIsRefused) {
  LoadPlan plan = plan_with({"a", "b"});
  plan.sources[0].aliases = {"b"};
  EXPECT_THAT(NameResolver::make(plan).status().message(),
              HasSubstr("\"b\": the plan names it twice"));
}

TEST(NameResolver, IgnorablePatternsStayInsideOneSegment) {
  EXPECT_TRUE(matches_pattern("a.*.c", "a.b.c"));
  EXPECT_TRUE(matches_pattern("a.*", "a."));
  EXPECT_TRUE(matches_pattern("x*y*z", "xyyz"));
  EXPECT_FALSE(matches_pattern("a.*", "a.b.c"));
  EXPECT_FALSE(matches_pattern("*", "a.b"));
  EXPECT_FALSE(matches_pattern("a*", "b"));
  EXPECT_FALSE(matches_pattern("a", "ab"));
  LoadPlan plan = plan_with({"w"});
  plan.ignorable = {"model.layers.*.rotary_emb.inv_freq", "extra"};
  const NameResolver resolver = resolver_of(plan);
  EXPECT_EQ(resolver.match("model.layers.7.rotary_emb.inv_freq").kind, NameMatch::Kind::kIgnorable);
  EXPECT_EQ(resolver.match("extra").kind, NameMatch::Kind::kIgnorable);
  EXPECT_EQ(resolver.match("extra.b").kind, NameMatch::Kind::kUnmatched);
}

// Case B18: the language layers are wrapped for adapters, the merger is not. Which names carry the
// segment is told name by name, on either side.
TEST(NameResolver, CaseB18_AWrapperSegmentMayStandInEachNameOrNot) {
  LoadPlan plan = plan_with({"layers.0.qkv.base_layer.weight", "merger.fc1.weight"});
  plan.optional_segments = {"base_layer"};
  plan.ignorable = {"layers.*.base_layer.bias"};
  const NameResolver resolver = resolver_of(plan);
  for (const char* name : {"layers.0.qkv.base_layer.weight", "layers.0.qkv.weight"}) {
    EXPECT_EQ(resolver.match(name).kind, NameMatch::Kind::kSource) << name;
    EXPECT_EQ(resolver.match(name).source, 0u) << name;
  }
  EXPECT_EQ(resolver.match("merger.fc1.base_layer.weight").source, 1u);
  EXPECT_EQ(resolver.match("merger.fc1.weight").source, 1u);
  EXPECT_EQ(resolver.match("merger.fc1.base_layers.weight").kind, NameMatch::Kind::kUnmatched);
  EXPECT_EQ(resolver.match("layers.7.bias").kind, NameMatch::Kind::kIgnorable);
  EXPECT_EQ(resolver.match("base_layer").kind, NameMatch::Kind::kUnmatched);
  const std::vector<std::string> sent = {"layers.0.qkv.base_layer.weight",
                                         "merger.fc1.base_layer.weight"};
  EXPECT_TRUE(resolver.compare(sent).to_status().ok());
}

TEST(NameResolver, CaseB18_AnAdapterThatMatchesNothingIsAnError) {
  LoadPlan plan = plan_with({"layers.0.qkv.base_layer.weight"});
  plan.optional_segments = {"base_layer"};
  const std::vector<std::string> adapter = {"layers.0.qkv.lora_A.weight",
                                            "layers.0.qkv.lora_B.weight"};
  EXPECT_THAT(resolver_of(plan).compare(adapter).to_status().message(), HasSubstr("0 of 1"));
}

TEST(NameResolver, CaseB18_BothVariantsAreAmbiguous) {
  LoadPlan plan = plan_with({"layers.0.qkv.base_layer.weight", "layers.0.qkv.weight"});
  EXPECT_TRUE(NameResolver::make(plan).ok());
  plan.optional_segments = {"base_layer"};
  EXPECT_THAT(NameResolver::make(plan).status().message(),
              HasSubstr("\"layers.0.qkv.base_layer.weight\" and \"layers.0.qkv.weight\" are "
                        "ambiguous"));
  // Sent both ways, they are one tensor that came twice.
  plan = plan_with({"layers.0.qkv.weight"});
  plan.optional_segments = {"base_layer"};
  const std::vector<std::string> both = {"layers.0.qkv.base_layer.weight", "layers.0.qkv.weight"};
  EXPECT_EQ(resolver_of(plan).compare(both).collisions.size(), 1u);
  plan = plan_with({"base_layer"});
  plan.optional_segments = {"base_layer"};
  EXPECT_THAT(NameResolver::make(plan).status().message(), HasSubstr("nothing is left"));
  plan.optional_segments = {"base.layer"};
  EXPECT_THAT(NameResolver::make(plan).status().message(), HasSubstr("optional_segments"));
}

TEST(NameResolver, LongAndEmptyNamesAreUnmatchedNotACrash) {
  LoadPlan plan = plan_with({std::string(100, 'p') + ".w"});
  plan.add_prefix = std::string(100, 'p');
  plan.drop_segments = {"x"};
  const NameResolver resolver = resolver_of(plan);
  EXPECT_EQ(resolver.match("").kind, NameMatch::Kind::kUnmatched);
  EXPECT_EQ(resolver.match("x").kind, NameMatch::Kind::kUnmatched);
  EXPECT_EQ(resolver.match("x.x").kind, NameMatch::Kind::kUnmatched);
  EXPECT_EQ(resolver.match("....").kind, NameMatch::Kind::kUnmatched);
  EXPECT_EQ(resolver.match(std::string(4096, 'a')).kind, NameMatch::Kind::kUnmatched);
  EXPECT_EQ(resolver.match(std::string(4097, 'a')).kind, NameMatch::Kind::kUnmatched);
  EXPECT_EQ(resolver.match("w").kind, NameMatch::Kind::kSource);
  // The longest prefix and the longest name fit together.
  plan = plan_with({});
  plan.add_prefix = std::string(kTensorNameBytesMax, 'p');
  EXPECT_EQ(resolver_of(plan).match(std::string(4096, 'a')).kind, NameMatch::Kind::kUnmatched);
}

}  // namespace
}  // namespace changeover::model
