#include "reference/admin_protocol.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "reference/digests_reply.h"

namespace changeover::reference {
namespace {

TEST(AdminRequest, TheFiveRequestsAreUnderstood) {
  for (const AdminRequest request :
       {AdminRequest::kStatus, AdminRequest::kDigests, AdminRequest::kReport, AdminRequest::kSteps,
        AdminRequest::kStop}) {
    const std::string line =
        "{ \"request\": \"" + std::string(admin_request_name(request)) + "\", \"format\": 1 }\r";
    const auto parsed = parse_admin_request(line);
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(*parsed, request);
  }
}

TEST(AdminRequest, S3_EachBadRequestIsToldWhatIsWrong) {
  const auto why = [](std::string_view line) {
    const auto parsed = parse_admin_request(line);
    EXPECT_FALSE(parsed.ok()) << line;
    return parsed.status().to_string();
  };
  EXPECT_NE(why("").find("corrupt"), std::string::npos);
  EXPECT_NE(why("status").find("corrupt"), std::string::npos);
  EXPECT_NE(why("[1]").find("an array where an object"), std::string::npos);
  EXPECT_NE(why(R"({"request":"status"})").find("\"format\" is not 1"), std::string::npos);
  EXPECT_NE(why(R"({"format":2,"request":"status"})").find("\"format\""), std::string::npos);
  EXPECT_NE(why(R"({"format":1.0,"request":"status"})").find("\"format\""), std::string::npos);
  EXPECT_NE(why(R"({"format":1,"request":"sing"})").find("\"sing\""), std::string::npos);
  EXPECT_NE(why(R"({"format":1,"request":7})").find("no string"), std::string::npos);
  EXPECT_NE(why(R"({"format":1})").find("no string"), std::string::npos);
  EXPECT_NE(why(R"({"format":1,"request":"stop","now":true})").find("unknown key \"now\""),
            std::string::npos);
  EXPECT_NE(why(R"({"format":1,"request":"stop","request":"stop"})").find("corrupt"),
            std::string::npos);
  EXPECT_NE(why(std::string(5000, ' ')).find("5000 bytes, at most 4096"), std::string::npos);
}

TEST(AdminReply, StatusSaysWhatARankIs) {
  AdminFacts facts;
  facts.job = "default";
  facts.endpoint = "shm:demo";
  facts.engine_size = 3;
  RankStatus status;
  status.rank = {"engine-a", 2};
  status.version = VersionStamp{0, 7};
  status.fenced = true;
  status.fence_reason = "receiving version 8";
  status.phase = "receiving";
  status.last_error = Status(Code::kDeadline, "waited \"10 s\"\n\xff");
  StepStatus steps;
  steps.run = 12;
  steps.pauses.push_back({VersionStamp{0, 6}, VersionStamp{0, 7}, 9, 0.25});
  steps.last_step_age_seconds = 0.5;
  steps.recent.push_back({9, {0, 7}, 0xABC});
  const std::string line = admin_status_reply(facts, status, steps);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto document = base::JsonDocument::parse(line);
  ASSERT_TRUE(document.ok()) << document.status().to_string() << line;
  const base::JsonValue root = document->root();
  EXPECT_EQ(root.find("format")->integer(), 1);
  EXPECT_EQ(root.find("ok")->boolean(), true);
  EXPECT_EQ(root.find("engine")->string(), "engine-a");
  EXPECT_EQ(root.find("rank")->integer(), 2);
  EXPECT_EQ(root.find("version")->find("version")->integer(), 7);
  EXPECT_TRUE(root.find("digest")->is(base::JsonKind::kNull));
  EXPECT_EQ(root.find("fenced")->boolean(), true);
  EXPECT_EQ(root.find("last_error")->find("code")->string(), "deadline");
  EXPECT_EQ(root.find("steps")->find("run")->integer(), 12);
  EXPECT_FALSE(root.find("steps")->find("recent").has_value());
  EXPECT_EQ(root.find("steps")->find("pauses")->size(), 1u);
  const auto recent = base::JsonDocument::parse(admin_steps_reply(status.rank, steps));
  ASSERT_TRUE(recent.ok());
  const auto record = *recent->root().find("steps")->find("recent")->elements().begin();
  EXPECT_EQ(record.find("checksum")->string(), "0000000000000abc");
}

AdminDigests some_digests() {
  AdminDigests digests;
  digests.version = VersionStamp{1, 2};
  digests.fenced = true;
  digests.fence_reason = "waiting for release";
  digests.parameters = {{"embed", DType::kBF16, {4, 2}}, {"scale", DType::kF8E8M0FNU, {}}};
  digests.digests.resize(2);
  digests.digests[1].bytes[0] = 0xAB;
  return digests;
}

AdminFacts some_facts() {
  AdminFacts facts;
  facts.architecture = "LlamaForCausalLM";
  facts.plan_options.tp_rank = 1;
  facts.plan_options.tp_size = 3;
  facts.plan_options.dtype = DType::kBF16;
  facts.plan_options.experts = ExpertShare{1, 2, 0, 3};
  facts.plan_options.placement.redundant = 4;
  facts.plan_options.source_form = "fused";
  facts.plan_options.dtypes = {{"*.gate.weight", DType::kF32, DType::kBF16},
                               {"*.bias", DType::kF16, std::nullopt}};
  facts.plan_options.strip_prefixes = {"module."};
  facts.plan_digest.bytes[3] = 9;
  return facts;
}

TEST(AdminReply, DigestsComeBackAsTheyWere) {
  const AdminFacts facts = some_facts();
  const std::string line = admin_digests_reply(facts, {"a", 1}, some_digests());
  const auto reply = parse_digests_reply(line);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->rank, (RankName{"a", 1}));
  EXPECT_EQ(reply->version, (VersionStamp{1, 2}));
  EXPECT_TRUE(reply->fenced);
  EXPECT_EQ(reply->fence_reason, "waiting for release");
  EXPECT_EQ(reply->plan_options.tp_size, 3);
  EXPECT_EQ(reply->plan_options.dtype, DType::kBF16);
  EXPECT_EQ(reply->plan_options.experts, facts.plan_options.experts);
  EXPECT_EQ(reply->plan_options.placement, facts.plan_options.placement);
  EXPECT_EQ(reply->plan_options.source_form, "fused");
  EXPECT_EQ(reply->plan_options.dtypes, facts.plan_options.dtypes);
  EXPECT_EQ(reply->plan_options.strip_prefixes, std::vector<std::string>{"module."});
  EXPECT_EQ(reply->plan_digest, some_facts().plan_digest);
  ASSERT_EQ(reply->parameters.size(), 2u);
  EXPECT_EQ(reply->parameters[0].spec, some_digests().parameters[0]);
  EXPECT_EQ(reply->parameters[1].spec, some_digests().parameters[1]);
  EXPECT_EQ(reply->parameters[1].digest, some_digests().digests[1]);
}

TEST(AdminReply, ARanksRefusalComesBackAsItsStatus) {
  const auto reply =
      parse_digests_reply(admin_error_reply({Code::kTryLater, "an update is being received"}));
  EXPECT_EQ(reply.status().code(), Code::kTryLater);
  EXPECT_EQ(reply.status().message(), "an update is being received");
}

TEST(AdminReply, S3_EveryMissingKeyOfADigestsReplyIsNamed) {
  const std::string line = admin_digests_reply(some_facts(), {"a", 1}, some_digests());
  for (const std::string key : {"format",         "ok",
                                "engine",         "rank",
                                "version",        "fenced",
                                "fence_reason",   "plan",
                                "tp_rank",        "tp_size",
                                "generation",     "vocab_multiple",
                                "experts",        "placement",
                                "source_form",    "dtypes",
                                "drop_segments",  "optional_segments",
                                "strip_prefixes", "add_prefix",
                                "model_file",     "parameters",
                                "name",           "shape",
                                "epoch"}) {
    std::string broken = line;
    const size_t at = broken.find("\"" + key + "\":");
    ASSERT_NE(at, std::string::npos) << key;
    broken[at + 1] = '_';
    const auto reply = parse_digests_reply(broken);
    ASSERT_FALSE(reply.ok()) << key;
    EXPECT_EQ(reply.status().code(), Code::kCorrupt);
    EXPECT_NE(reply.status().message().find("\"" + key + "\""), std::string::npos)
        << reply.status().message();
  }
}

}  // namespace
}  // namespace changeover::reference
