// What callers send wrongly: each request is answered by a documented status that names the field, at once, without an
// effect on its neighbours. The table also says what is valid already and what is not implemented yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

using grpc::StatusCode;
using Change = std::function<void(v1::GenerateRequest&)>;

constexpr int32_t kVocabulary = 2048;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  std::string name;
  Change change;
  StatusCode code = StatusCode::INVALID_ARGUMENT;
  std::string field;  // In BadRequest; empty where the code is OK.
};

template <typename Set>
Change Sampling(Set set) {
  return [set](v1::GenerateRequest& r) { set(*r.mutable_sampling()); };
}
template <typename Set>
Change Stopping(Set set) {
  return [set](v1::GenerateRequest& r) { set(*r.mutable_stopping()); };
}
template <typename Set>
Change Policy(Set set) {
  return [set](v1::GenerateRequest& r) { set(*r.mutable_kv_policy()); };
}

void AddNumberCases(std::vector<Case>& cases) {
  struct Number {
    std::string field;
    void (v1::Sampling::*set)(float);
    std::vector<float> bad, good;
  };
  const std::vector<Number> numbers = {
      {"temperature", &v1::Sampling::set_temperature, {-1.0F, 1e9F}, {0.0F, -0.0F, 1e-38F, 1e-6F, 1e-3F, 2.0F}},
      {"top_p", &v1::Sampling::set_top_p, {0.0F, -0.0F, -0.1F, 1.1F, 1e9F}, {1e-38F, 1e-6F, 0.5F, 1.0F}},
      {"min_p", &v1::Sampling::set_min_p, {-0.1F, 1.1F, 1e9F}, {0.0F, 1e-38F, 1.0F}},
      {"repetition_penalty", &v1::Sampling::set_repetition_penalty, {0.0F, -1.0F, 1e9F, 1e-38F}, {0.5F, 1.0F, 2.0F}},
      {"presence_penalty", &v1::Sampling::set_presence_penalty, {-3.0F, 1e9F}, {-2.0F, 0.0F, 2.0F}},
      {"frequency_penalty", &v1::Sampling::set_frequency_penalty, {-3.0F, 1e9F}, {-2.0F, 1e-38F, 2.0F}},
  };
  for (const Number& number : numbers) {
    std::vector<float> bad = number.bad;
    bad.insert(bad.end(), {kNan, kInf, -kInf});
    for (const float value : bad) {
      cases.push_back({number.field + " = " + std::to_string(value),
                       Sampling([=](v1::Sampling& s) { (s.*number.set)(value); }), StatusCode::INVALID_ARGUMENT,
                       "sampling." + number.field});
    }
    for (const float value : number.good) {
      cases.push_back({number.field + " = " + std::to_string(value),
                       Sampling([=](v1::Sampling& s) { (s.*number.set)(value); }), StatusCode::OK, ""});
    }
  }
}

void AddIdCases(std::vector<Case>& cases) {
  for (const int32_t id : {-1, kVocabulary, kVocabulary + 1, INT32_MAX, INT32_MIN}) {
    const std::string found = " id " + std::to_string(id);
    cases.push_back({"prompt" + found, [=](v1::GenerateRequest& r) { r.mutable_tokens()->add_ids(id); },
                     StatusCode::INVALID_ARGUMENT, "tokens.ids"});
    cases.push_back({"stop" + found, Stopping([=](v1::Stopping& s) { s.add_stop_token_ids(id); }),
                     StatusCode::INVALID_ARGUMENT, "stopping.stop_token_ids"});
    cases.push_back({"bias" + found, Sampling([=](v1::Sampling& s) { (*s.mutable_logit_bias())[id] = 1.0F; }),
                     StatusCode::INVALID_ARGUMENT, "sampling.logit_bias"});
    cases.push_back({"allowed" + found, Sampling([=](v1::Sampling& s) { s.add_allowed_token_ids(id); }),
                     StatusCode::INVALID_ARGUMENT, "sampling.allowed_token_ids"});
  }
  for (const float bias : {kNan, kInf, -kInf, 1e9F}) {
    cases.push_back({"bias " + std::to_string(bias),
                     Sampling([=](v1::Sampling& s) { (*s.mutable_logit_bias())[3] = bias; }),
                     StatusCode::INVALID_ARGUMENT, "sampling.logit_bias"});
  }
}

void AddInputCases(std::vector<Case>& cases) {
  const auto bad = [&](const char* name, Change change, const char* field) {
    cases.push_back({name, std::move(change), StatusCode::INVALID_ARGUMENT, field});
  };
  bad(
      "no input", [](v1::GenerateRequest& r) { r.clear_input(); }, "input");
  bad(
      "empty text", [](v1::GenerateRequest& r) { r.set_text(""); }, "text");
  bad(
      "empty tokens", [](v1::GenerateRequest& r) { r.mutable_tokens()->clear_ids(); }, "tokens.ids");
  bad(
      "no messages", [](v1::GenerateRequest& r) { r.mutable_chat(); }, "chat.messages");
  bad(
      "message without a role", [](v1::GenerateRequest& r) { r.mutable_chat()->add_messages()->set_content("a"); },
      "chat.messages[0].role");
  bad(
      "content twice",
      [](v1::GenerateRequest& r) {
        v1::ChatMessage& message = *r.mutable_chat()->add_messages();
        message.set_role("user");
        message.set_content("a");
        message.add_content_parts("b");
      },
      "chat.messages[0].content_parts");
  bad(
      "tools not JSON",
      [](v1::GenerateRequest& r) {
        v1::ChatMessage& message = *r.mutable_chat()->add_messages();
        message.set_role("user");
        message.set_content("a");
        r.mutable_chat()->set_tools_json("{");
      },
      "chat.tools_json");
  bad(
      "add_special with tokens", [](v1::GenerateRequest& r) { r.set_add_special(true); }, "add_special");
  bad(
      "long request id", [](v1::GenerateRequest& r) { r.set_request_id(std::string(129, 'a')); }, "request_id");
  bad(
      "control in request id", [](v1::GenerateRequest& r) { r.set_request_id("a\nb"); }, "request_id");
  bad(
      "salt too long", [](v1::GenerateRequest& r) { r.mutable_cache()->set_salt(std::string(257, 'a')); },
      "cache.salt");
  bad(
      "negative hint", [](v1::GenerateRequest& r) { r.mutable_cache()->add_checkpoint_hints(-1); },
      "cache.checkpoint_hints");
  bad(
      "priority above the limit", [](v1::GenerateRequest& r) { r.mutable_scheduling()->set_priority(1); },
      "scheduling.priority");
  cases.push_back(
      {"unknown model", [](v1::GenerateRequest& r) { r.set_model("gpt"); }, StatusCode::NOT_FOUND, "model"});
  cases.push_back({"own model", [](v1::GenerateRequest& r) { r.set_model("tiny-hybrid"); }, StatusCode::OK, ""});
}

void AddCountCases(std::vector<Case>& cases) {
  const auto bad = [&](const char* name, Change change, const char* field) {
    cases.push_back({name, std::move(change), StatusCode::INVALID_ARGUMENT, field});
  };
  bad("top_k -1", Sampling([](v1::Sampling& s) { s.set_top_k(-1); }), "sampling.top_k");
  for (const int32_t top_k : {0, 1, kVocabulary, kVocabulary + 1, INT32_MAX}) {
    cases.push_back(
        {"top_k " + std::to_string(top_k), Sampling([=](v1::Sampling& s) { s.set_top_k(top_k); }), StatusCode::OK, ""});
  }
  bad("n 0", Sampling([](v1::Sampling& s) { s.set_n(0); }), "sampling.n");
  bad("n -1", Sampling([](v1::Sampling& s) { s.set_n(-1); }), "sampling.n");
  bad("max_tokens -1", Stopping([](v1::Stopping& s) { s.set_max_tokens(-1); }), "stopping.max_tokens");
  bad("min above max", Stopping([](v1::Stopping& s) { s.set_min_tokens(5); }), "stopping.min_tokens");
  bad("min -1", Stopping([](v1::Stopping& s) { s.set_min_tokens(-1); }), "stopping.min_tokens");
  bad("empty stop", Stopping([](v1::Stopping& s) { s.add_stop(""); }), "stopping.stop");
  bad("long stop", Stopping([](v1::Stopping& s) { s.add_stop(std::string(257, 'a')); }), "stopping.stop");
  bad("many stops", Stopping([](v1::Stopping& s) {
        for (int i = 0; i < 17; ++i) s.add_stop("a");
      }),
      "stopping.stop");
  bad("many stop ids", Stopping([](v1::Stopping& s) {
        for (int i = 0; i < 257; ++i) s.add_stop_token_ids(1);
      }),
      "stopping.stop_token_ids");
  bad(
      "many hints",
      [](v1::GenerateRequest& r) {
        for (int i = 0; i < 65; ++i) r.mutable_cache()->add_checkpoint_hints(1);
      },
      "cache.checkpoint_hints");
  bad(
      "logprobs -1", [](v1::GenerateRequest& r) { r.mutable_output()->set_logprobs(-1); }, "output.logprobs");
  bad(
      "logprobs 21", [](v1::GenerateRequest& r) { r.mutable_output()->set_logprobs(21); }, "output.logprobs");
  bad(
      "prompt_logprobs -1", [](v1::GenerateRequest& r) { r.mutable_output()->set_prompt_logprobs(-1); },
      "output.prompt_logprobs");
  bad(
      "prompt too long",
      [](v1::GenerateRequest& r) {
        for (int i = 0; i < 5000; ++i) r.mutable_tokens()->add_ids(1);
      },
      "tokens.ids");
}

void AddPolicyCases(std::vector<Case>& cases) {
  const auto later = [&](const char* name, Change change, const char* field) {
    cases.push_back({name, std::move(change), StatusCode::UNIMPLEMENTED, field});
  };
  const auto good = [&](const char* name, Change change) {
    cases.push_back({name, std::move(change), StatusCode::OK, ""});
  };
  later("n 2", Sampling([](v1::Sampling& s) { s.set_n(2); }), "sampling.n");
  later("n a million", Sampling([](v1::Sampling& s) { s.set_n(1'000'000); }), "sampling.n");
  good("lossless by compressed KV", Policy([](v1::KvPolicy& p) { p.set_exactness(v1::KvPolicy::LOSSLESS); }));
  const auto wrong = [&](const char* name, Change change, const char* field) {
    cases.push_back({name, std::move(change), StatusCode::INVALID_ARGUMENT, field});
  };
  const auto approximate = [](const std::string& compressor, const std::optional<float> budget) {
    return Policy([=](v1::KvPolicy& p) {
      p.set_exactness(v1::KvPolicy::APPROXIMATE);
      p.set_compressor(compressor);
      if (budget.has_value()) p.set_kv_budget(*budget);
    });
  };
  good("approximate", approximate("", {}));
  good("approximate in fewer bits", approximate("kivi4", {}));
  good("approximate with settings", approximate("centroid:chunk=32,encoding=int8", 0.25F));
  wrong("compressor of an exact request", Policy([](v1::KvPolicy& p) { p.set_compressor("centroid"); }),
        "kv_policy.compressor");
  wrong("kv_budget of an exact request", Policy([](v1::KvPolicy& p) { p.set_kv_budget(0.5F); }), "kv_policy.kv_budget");
  wrong("unknown compressor", approximate("zip", 0.5F), "kv_policy.compressor");
  wrong("unknown setting", approximate("centroid:size=3", 0.5F), "kv_policy.compressor");
  wrong("setting out of range", approximate("centroid:chunk=1", 0.5F), "kv_policy.compressor");
  wrong("settings without any", approximate("centroid:", 0.5F), "kv_policy.compressor");
  wrong("compressor that goes by a second pass", approximate("kvzip", 0.5F), "kv_policy.compressor");
  good("compressor that is shown queries", approximate("snapkv", 0.5F));
  good("compressor that is shown queries of all tokens", approximate("h2o", 0.5F));
  wrong("compressor of 257 bytes", approximate(std::string(257, 'c'), 0.5F), "kv_policy.compressor");
  wrong("kv_budget of what keeps all", approximate("int8", 0.5F), "kv_policy.kv_budget");
  for (const float budget : {0.0F, -0.5F, 1.01F, NAN, INFINITY}) {
    wrong("kv_budget out of range", approximate("centroid", budget), "kv_policy.kv_budget");
  }
  wrong("drafter of an approximate request", Policy([](v1::KvPolicy& p) {
          p.set_exactness(v1::KvPolicy::APPROXIMATE);
          p.set_drafter("ngram");
        }),
        "kv_policy.drafter");
  const auto ngram = [](const std::optional<int32_t> draft_tokens) {
    return Policy([=](v1::KvPolicy& p) {
      p.set_exactness(v1::KvPolicy::LOSSLESS);
      p.set_drafter("ngram");
      if (draft_tokens.has_value()) p.set_draft_tokens(*draft_tokens);
    });
  };
  good("lossless by look-up", ngram({}));
  good("draft of 64", ngram(64));
  for (const int32_t draft : {0, -1, 65, INT32_MAX}) {
    cases.push_back(
        {"draft of " + std::to_string(draft), ngram(draft), StatusCode::INVALID_ARGUMENT, "kv_policy.draft_tokens"});
  }
  cases.push_back({"unknown drafter", Policy([](v1::KvPolicy& p) {
                     p.set_exactness(v1::KvPolicy::LOSSLESS);
                     p.set_drafter("crystal_ball");
                   }),
                   StatusCode::INVALID_ARGUMENT, "kv_policy.drafter"});
  cases.push_back({"draft of an exact request", Policy([](v1::KvPolicy& p) { p.set_draft_tokens(4); }),
                   StatusCode::INVALID_ARGUMENT, "kv_policy.draft_tokens"});
  cases.push_back({"drafter of an exact request", Policy([](v1::KvPolicy& p) { p.set_drafter("ngram"); }),
                   StatusCode::INVALID_ARGUMENT, "kv_policy.drafter"});
  good("exact transfer", Policy([](v1::KvPolicy& p) { p.set_transfer(v1::KvPolicy::EXACT_TRANSFER); }));
  good("any transfer where nothing is fetched",
       Policy([](v1::KvPolicy& p) { p.set_transfer(v1::KvPolicy::ANY_TRANSFER); }));
  good("a hand-off where nothing is fetched", [](v1::GenerateRequest& r) { r.set_kv_transfer_params_json("{}"); });
  cases.push_back({"a long hand-off",
                   [](v1::GenerateRequest& r) { r.set_kv_transfer_params_json(std::string(5000, ' ')); },
                   StatusCode::INVALID_ARGUMENT, "kv_transfer_params_json"});
  later(
      "json schema", [](v1::GenerateRequest& r) { r.mutable_constraint()->set_json_schema("{}"); },
      "constraint.json_schema");
  later(
      "regex", [](v1::GenerateRequest& r) { r.mutable_constraint()->set_regex("a"); }, "constraint.regex");
  later(
      "grammar", [](v1::GenerateRequest& r) { r.mutable_constraint()->set_grammar("a"); }, "constraint.grammar");
  later(
      "json object", [](v1::GenerateRequest& r) { r.mutable_constraint()->set_json_object(true); },
      "constraint.json_object");
  later(
      "choice", [](v1::GenerateRequest& r) { r.mutable_constraint()->mutable_choice()->add_options("a"); },
      "constraint.choice");
  good("exact", Policy([](v1::KvPolicy& p) { p.set_exactness(v1::KvPolicy::EXACT); }));
  good("no transfer", Policy([](v1::KvPolicy& p) { p.set_transfer(v1::KvPolicy::NO_TRANSFER); }));
  good("n 1", Sampling([](v1::Sampling& s) { s.set_n(1); }));
  good("cache switches", [](v1::GenerateRequest& r) {
    r.mutable_cache()->set_bypass_read(true);
    r.mutable_cache()->set_bypass_write(true);
    r.mutable_cache()->set_salt("s");
    r.mutable_cache()->add_checkpoint_hints(2);
  });
  for (const float budget : {kNan, 0.0F, -1.0F, 1.5F, kInf}) {
    cases.push_back({"kv_budget " + std::to_string(budget), Policy([=](v1::KvPolicy& p) { p.set_kv_budget(budget); }),
                     StatusCode::INVALID_ARGUMENT, "kv_policy.kv_budget"});
  }
  cases.push_back({"exactness 9",
                   Policy([](v1::KvPolicy& p) { p.set_exactness(static_cast<v1::KvPolicy::Exactness>(9)); }),
                   StatusCode::INVALID_ARGUMENT, "kv_policy.exactness"});
  cases.push_back({"transfer 9",
                   Policy([](v1::KvPolicy& p) { p.set_transfer(static_cast<v1::KvPolicy::Transfer>(9)); }),
                   StatusCode::INVALID_ARGUMENT, "kv_policy.transfer"});
}

std::string FieldOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return "(no details)";
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  for (const auto& any : details.details()) {
    google::rpc::BadRequest bad_request;
    if (any.UnpackTo(&bad_request)) return bad_request.field_violations(0).field();
  }
  return "(no BadRequest)";
}

std::string ReasonOf(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&info)) return info.domain() + "/" + info.reason();
  }
  return "";
}

TEST(BadRequest, EveryCaseIsAnsweredByItsStatusAndFieldBesideANeighbourThatKeepsItsBits) {
  std::vector<Case> cases;
  AddNumberCases(cases);
  AddIdCases(cases);
  AddInputCases(cases);
  AddCountCases(cases);
  AddPolicyCases(cases);
  ASSERT_GE(cases.size(), 120U);

  RunningDaemon daemon(TinyConfig());
  const auto stub = daemon.NewStub();
  const v1::GenerateRequest neighbour = TokensRequest({10, 20, 30}, 60);
  const Outcome lone = Collect(*stub, neighbour);
  std::atomic<bool> done = false;
  std::thread beside([&] {
    const auto own = daemon.NewStub();
    while (!done) {
      const Outcome outcome = Collect(*own, neighbour);
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
      EXPECT_EQ(outcome.logit_bits, lone.logit_bits);
    }
  });
  for (const Case& c : cases) {
    v1::GenerateRequest request = TokensRequest({1, 2, 3}, 3);
    c.change(request);
    const Outcome outcome = Collect(*stub, request);
    EXPECT_EQ(outcome.status.error_code(), c.code) << c.name << ": " << outcome.status.error_message();
    if (c.code == StatusCode::OK) {
      EXPECT_EQ(outcome.token_ids.size(), 3U) << c.name;
      continue;
    }
    EXPECT_EQ(FieldOf(outcome.status), c.field) << c.name << ": " << outcome.status.error_message();
    EXPECT_THAT(outcome.status.error_message(), testing::HasSubstr(c.field)) << c.name;
    // Nothing internal leaks: no address, no path.
    EXPECT_EQ(outcome.status.error_message().find("0x"), std::string::npos) << c.name;
    EXPECT_EQ(outcome.status.error_message().find('/'), std::string::npos) << c.name;
  }
  done = true;
  beside.join();
  EXPECT_TRUE(daemon.BecomesIdle());
}

TEST(BadRequest, DetailsCarryAReasonThatProgramsCompare) {
  RunningDaemon daemon(TinyConfig());
  const auto stub = daemon.NewStub();
  // One code and one reason, however the prompt was given and whichever limit it meets first.
  config::Config::Limits limits;
  const std::string text(limits.text_bytes_max + 1, 'a');
  v1::GenerateRequest chat = TokensRequest({}, 1);
  v1::ChatMessage& message = *chat.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content(std::string(20'000, '7'));
  v1::GenerateRequest long_chat = chat;
  long_chat.mutable_chat()->mutable_messages(0)->set_content(text);
  for (const v1::GenerateRequest& request :
       {TokensRequest(std::vector<int32_t>(5000, 1), 1), TextRequest(std::string(20'000, '7'), 1), TextRequest(text, 1),
        chat, long_chat}) {
    const grpc::Status status = Collect(*stub, request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(ReasonOf(status), "invar/PROMPT_TOO_LONG") << status.error_message();
  }
  v1::GenerateRequest request = TokensRequest({1}, 1);
  request.mutable_sampling()->set_n(2);
  EXPECT_EQ(ReasonOf(Collect(*stub, request).status), "invar/NOT_IMPLEMENTED");
}

TEST(BadRequest, WhatTheConfigurationAllowsTheEngineAllows) {
  config::Config config = TinyConfig();
  config.limits.stop_strings_max = 100;
  config.limits.stop_string_bytes_max = 4000;
  config.limits.logprobs_max = 200;
  RunningDaemon daemon(config);
  v1::GenerateRequest request = TokensRequest({1}, 2);
  request.mutable_output()->set_logprobs(200);
  for (int i = 0; i < 100; ++i) request.mutable_stopping()->add_stop(std::string(4000, 'a'));
  const Outcome outcome = Collect(*daemon.NewStub(), request);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
}

TEST(BadRequest, OneThatNeverFitsIsRefusedAtOnceAndSmallOnesFinish) {
  config::Config config = TinyConfig();
  config.limits.text_bytes_max = 1000;
  config.engine.kv_budget = int64_t{1} << 20;
  RunningDaemon daemon(config);
  const auto stub = daemon.NewStub();
  const int32_t fits = engine::MaxRequestTokens(daemon.daemon().model()->engine->request_limits());
  ASSERT_LT(fits, daemon.daemon().model()->spec().max_sequence_tokens) << "the budget is the limit here";
  v1::ListModelsResponse models;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->ListModels(&context, {}, &models).ok());
  EXPECT_EQ(models.models(0).max_sequence_tokens(), fits);
  const Outcome large = Collect(*stub, TokensRequest(std::vector<int32_t>(fits, 1), 100));
  EXPECT_EQ(large.status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << large.status.error_message();
  // The model would take it, the budget never: no smaller max_tokens helps.
  v1::GenerateRequest beyond = TokensRequest(std::vector<int32_t>(fits + 1, 1), 5);
  beyond.set_stream(false);
  beyond.mutable_output()->set_logprobs(1);
  const grpc::Status long_prompt = Collect(*stub, beyond).status;
  EXPECT_EQ(long_prompt.error_code(), StatusCode::INVALID_ARGUMENT) << long_prompt.error_message();
  EXPECT_EQ(ReasonOf(long_prompt), "invar/PROMPT_TOO_LONG");
  EXPECT_EQ(FieldOf(long_prompt), "tokens.ids");
  EXPECT_THAT(long_prompt.error_message(), testing::HasSubstr("engine.kv_budget"));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Collect(*stub, TokensRequest({i}, 5)).status.ok());
  const Outcome text = Collect(*stub, TextRequest(std::string(1001, 'a'), 1));
  EXPECT_EQ(text.status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(text.status), "text");
}

TEST(BadRequest, AFullQueueIsResourceExhaustedWithRetryInfo) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.engine.running_max = 1;
  config.engine.queue_max = 2;
  RunningDaemon daemon(config, FingerprintLoader(&gate));
  gate.Close();
  std::vector<std::thread> callers;
  std::atomic<int> refused = 0, served = 0;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      const Outcome outcome = Collect(*daemon.NewStub(), TokensRequest({1}, 2));
      if (outcome.status.ok()) {
        ++served;
        return;
      }
      EXPECT_EQ(outcome.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
      google::rpc::Status details;
      EXPECT_TRUE(details.ParseFromString(outcome.status.error_details()));
      google::rpc::RetryInfo retry;
      bool has_retry = false;
      for (const auto& any : details.details()) has_retry = has_retry || any.UnpackTo(&retry);
      EXPECT_TRUE(has_retry);
      if (++refused == 4) gate.Open();
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_GE(refused, 4);
  EXPECT_EQ(refused + served, 8);
}

}  // namespace
}  // namespace invar::e2e
