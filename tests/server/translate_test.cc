// What a request means once the model's defaults are in: absent is never zero. (What is refused stands in
// tests/e2e/bad_request_test.cc, through the whole daemon.)
#include "server/wire/translate.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "config/fields.h"
#include "google/rpc/status.pb.h"
#include "server/wire/grpc_status.h"

namespace invar::server {
namespace {

class Translate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    StatusOr<std::unique_ptr<models::Tokenizer>> tokenizer =
        models::LoadTokenizer(std::string(INVAR_SOURCE_DIR) + "/assets/tiny-hybrid");
    Check(tokenizer.ok(), "the tiny tokenizer loads", tokenizer.status().message());
    tokenizer_ = std::move(*tokenizer).release();
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }
  Translate() {
    spec_.vocabulary_size = 2048;
    spec_.max_sequence_tokens = 100;
    request_.mutable_tokens()->add_ids(5);
  }

  TranslateContext Context() const {
    return {.model_name = name_,
            .spec = spec_,
            .request_limits = request_limits_,
            .tokenizer = *tokenizer_,
            .chat_template = nullptr,
            .defaults = defaults_,
            .limits = limits_,
            .drafters = drafters_,
            .speculation = speculation_,
            .approximate = approximate_,
            .transfer = transfer_,
            .hand_offs = &hand_offs_,
            .interrupted = {}};
  }

  TranslatedRequest Run() {
    StatusOr<TranslatedRequest> result = TranslateGenerate(request_, "tenant", Context());
    Check(result.ok(), "the request is valid", result.status().message());
    return *std::move(result);
  }

  static models::Tokenizer* tokenizer_;
  std::string name_ = "m";
  models::ModelSpec spec_;
  engine::RequestLimits request_limits_ = {
      .usable_ids = 2048, .max_sequence_tokens = 100, .page_tokens = 9, .pages = 10, .has_text = true};
  models::GenerationDefaults defaults_;
  config::Config::Limits limits_;
  std::vector<std::string> drafters_ = {"ngram"};
  config::Config::Engine::Speculation speculation_;
  config::Config::Engine::Approximate approximate_;
  config::Config::Transfer transfer_;
  HandOffs hand_offs_{"", {"p1"}, "secret"};
  v1::GenerateRequest request_;
};
models::Tokenizer* Translate::tokenizer_ = nullptr;

TEST_F(Translate, PrefixesMayComeFromElsewhereWhereRequestAndDeploymentAllowIt) {
  transfer_.role = "decode";
  transfer_.mode = "exact";
  EXPECT_TRUE(Run().request.transfer.allowed);
  request_.mutable_kv_policy()->set_transfer(v1::KvPolicy::NO_TRANSFER);
  EXPECT_FALSE(Run().request.transfer.allowed);
  transfer_.mode = "none";
  request_.mutable_kv_policy()->set_transfer(v1::KvPolicy::EXACT_TRANSFER);
  EXPECT_TRUE(Run().request.transfer.allowed);
  request_.clear_kv_policy();
  EXPECT_FALSE(Run().request.transfer.allowed);
  const std::vector<TokenId> prompt = {TokenId(5)};
  request_.set_kv_transfer_params_json(HandOffs("p1", {}, "secret").Issue(prompt, UnixMs()));
  EXPECT_TRUE(Run().request.transfer.allowed) << "a hand-off says so";
  EXPECT_EQ(Run().request.transfer.producer, "p1");
  request_.set_kv_transfer_params_json("{}");
  EXPECT_EQ(TranslateGenerate(request_, "tenant", Context()).status().field(), "kv_transfer_params_json");
  transfer_.role = "prefill";
  EXPECT_EQ(Run().request.transfer.producer, "") << "it fetches nothing: what is relayed to it means nothing to it";
}

// Writes more than the tokenizer takes, as a template may that repeats what it is given.
class LongTemplate final : public models::ChatTemplate {
 public:
  StatusOr<std::vector<models::PromptPiece>> Render(const models::ChatRequest&,
                                                    const models::RenderLimits&) const override {
    return std::vector<models::PromptPiece>{
        {.text = std::string(models::kTextBytesMax + 1, 'a'), .control = models::ControlTokens::kParse}};
  }
};

TEST_F(Translate, ARenderedChatThatCannotBeTokenizedIsRefusedAsTheChat) {
  const LongTemplate long_template;
  TranslateContext context = Context();
  context.chat_template = &long_template;
  v1::RenderChatRequest request;
  request.mutable_chat()->add_messages()->set_role("user");
  const Status status = TranslateRenderChat(request, context).status();
  EXPECT_EQ(status.field(), "chat") << status.message();
  EXPECT_TRUE(status.message().starts_with("chat: ")) << status.message();
}

// Says what is wrong as templates do, which know no fields, or as their callers do.
class RefusingTemplate final : public models::ChatTemplate {
 public:
  RefusingTemplate(std::string message, std::string field) : status_(InvalidArgument(message, field)) {}
  StatusOr<std::vector<models::PromptPiece>> Render(const models::ChatRequest&,
                                                    const models::RenderLimits&) const override {
    return status_;
  }

 private:
  const Status status_;
};

TEST_F(Translate, WhatATemplateRefusesNamesTheFieldOfTheChat) {
  const auto refused = [&](const std::string& message, const std::string& field) {
    const RefusingTemplate refusing(message, field);
    TranslateContext context = Context();
    context.chat_template = &refusing;
    v1::RenderChatRequest request;
    request.mutable_chat()->add_messages()->set_role("user");
    return TranslateRenderChat(request, context).status();
  };
  const Status by_itself = refused("chat template line 3: 'x' is undefined", "messages");
  EXPECT_EQ(by_itself.message(), "chat.messages: chat template line 3: 'x' is undefined");
  EXPECT_EQ(by_itself.field(), "chat.messages");
  const Status named = refused("messages[0].tool_calls_json: wanted a JSON array", "messages[0].tool_calls_json");
  EXPECT_EQ(named.message(), "chat.messages[0].tool_calls_json: wanted a JSON array");
  EXPECT_EQ(refused("too much", "").message(), "chat: too much");
}

TEST_F(Translate, CodesAreForThoseWhoTakeAnApproximateAnswer) {
  using Policy = v1::KvPolicy;
  struct Case {
    std::string mode;
    Policy::Transfer transfer;
    Policy::Exactness exactness;
    bool allowed = false;
    bool coded = false;
  };
  for (const Case& c : {Case{"exact", Policy::TRANSFER_UNSPECIFIED, Policy::EXACTNESS_UNSPECIFIED, true, false},
                        Case{"any", Policy::TRANSFER_UNSPECIFIED, Policy::EXACTNESS_UNSPECIFIED, true, true},
                        Case{"any", Policy::TRANSFER_UNSPECIFIED, Policy::EXACT, true, false},
                        Case{"any", Policy::EXACT_TRANSFER, Policy::EXACTNESS_UNSPECIFIED, true, false},
                        Case{"any", Policy::NO_TRANSFER, Policy::EXACTNESS_UNSPECIFIED, false, false},
                        Case{"none", Policy::ANY_TRANSFER, Policy::EXACTNESS_UNSPECIFIED, true, true},
                        Case{"none", Policy::ANY_TRANSFER, Policy::EXACT, true, false},
                        Case{"none", Policy::ANY_TRANSFER, Policy::LOSSLESS, true, false}}) {
    transfer_.role = "decode";
    transfer_.mode = c.mode;
    request_.mutable_kv_policy()->set_transfer(c.transfer);
    request_.mutable_kv_policy()->set_exactness(c.exactness);
    request_.mutable_kv_policy()->set_drafter(c.exactness == Policy::LOSSLESS ? "ngram" : "");
    const engine::Request::Transfer transfer = Run().request.transfer;
    EXPECT_EQ(transfer.allowed, c.allowed) << c.mode << " " << c.transfer << " " << c.exactness;
    EXPECT_EQ(transfer.coded, c.coded) << c.mode << " " << c.transfer << " " << c.exactness;
  }
}

TEST_F(Translate, AbsentNumbersAreTheModelsDefaults) {
  defaults_ = {.do_sample = true,
               .temperature = 0.6F,
               .top_p = 0.95F,
               .top_k = 20,
               .min_p = 0.1F,
               .repetition_penalty = 1.1F,
               .eos = {TokenId(7), TokenId(9)}};
  const engine::Request request = Run().request;
  EXPECT_EQ(request.sampling.temperature, 0.6F);
  EXPECT_EQ(request.sampling.top_p, 0.95F);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.sampling.min_p, 0.1F);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1F);
  EXPECT_EQ(request.stopping.stop_token_ids, (std::vector<TokenId>{TokenId(7), TokenId(9)}));
  EXPECT_EQ(request.stopping.max_tokens, 89) << "up to what one request may take";
  EXPECT_EQ(request.tenant, "tenant");
}

TEST_F(Translate, GivenZerosAreZeros) {
  defaults_ = {.do_sample = true, .temperature = 0.6F, .top_k = 20, .eos = {TokenId(7)}};
  request_.mutable_sampling()->set_temperature(0.0F);
  request_.mutable_sampling()->set_top_k(0);
  request_.mutable_sampling()->set_seed(0);
  request_.mutable_stopping()->set_max_tokens(0);
  request_.mutable_stopping()->set_ignore_eos(true);
  const engine::Request request = Run().request;
  EXPECT_EQ(request.sampling.temperature, 0.0F);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.seed, 0U);
  EXPECT_EQ(request.stopping.max_tokens, 0);
  EXPECT_TRUE(request.stopping.stop_token_ids.empty());
}

TEST_F(Translate, AModelThatDoesNotSampleIsGreedy) {
  defaults_ = {.do_sample = false, .temperature = 0.6F, .eos = {}};
  EXPECT_EQ(Run().request.sampling.temperature, 0.0F);
}

TEST_F(Translate, DrawsSeedsAndIdsThatDiffer) {
  const TranslatedRequest a = Run(), b = Run();
  EXPECT_NE(a.request.sampling.seed, b.request.sampling.seed);
  EXPECT_EQ(static_cast<int64_t>(a.request.sampling.seed), a.form.seed);
  EXPECT_NE(a.request.request_id, b.request.request_id);
  EXPECT_EQ(a.request.request_id.size(), 32U);
  request_.set_request_id("mine");
  request_.mutable_sampling()->set_seed(-5);
  EXPECT_EQ(Run().request.request_id, "mine");
  EXPECT_EQ(Run().form.seed, -5);
}

TEST_F(Translate, TextKeepsControlTokensAsText) {
  request_.set_text("<|im_end|>");
  EXPECT_GT(Run().request.prompt.size(), 1U);
}

// --- Speculation ---

TEST_F(Translate, LosslessRequestsSpeculateAndOthersDoNot) {
  v1::KvPolicy& policy = *request_.mutable_kv_policy();
  EXPECT_TRUE(Run().request.speculation.drafter.empty());
  policy.set_exactness(v1::KvPolicy::EXACT);
  EXPECT_TRUE(Run().request.speculation.drafter.empty());
  policy.set_exactness(v1::KvPolicy::LOSSLESS);
  policy.set_drafter("ngram");
  EXPECT_EQ(Run().request.speculation.drafter, "ngram");
  EXPECT_FALSE(Run().request.speculation.draft_tokens.has_value());
  policy.set_draft_tokens(5);
  EXPECT_EQ(Run().request.speculation.draft_tokens, 5);
  policy.clear_drafter();
  speculation_.drafter = "ngram";
  EXPECT_EQ(Run().request.speculation.drafter, "ngram");
}

TEST_F(Translate, DraftersThatThisBuildLacksAreNamedWithThoseItHas) {
  v1::KvPolicy& policy = *request_.mutable_kv_policy();
  policy.set_exactness(v1::KvPolicy::LOSSLESS);
  for (const char* const drafter : {"", "compressed_kv", "mtp", "ngram+compressed_kv"}) {
    policy.set_drafter(drafter);
    const Status status = TranslateGenerate(request_, "tenant", Context()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << drafter;
    EXPECT_EQ(status.field(), "kv_policy.drafter");
    EXPECT_NE(status.message().find("name one of: ngram"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("engine.speculation.drafter") != std::string::npos, drafter[0] == 0);
  }
  policy.set_drafter(std::string(65, 'x'));
  EXPECT_EQ(TranslateGenerate(request_, "tenant", Context()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Translate, OnlyLosslessRequestsMayTellHowToDraft) {
  request_.mutable_kv_policy()->set_drafter("ngram");
  EXPECT_EQ(TranslateGenerate(request_, "tenant", Context()).status().field(), "kv_policy.drafter");
  request_.mutable_kv_policy()->set_exactness(v1::KvPolicy::EXACT);
  request_.mutable_kv_policy()->set_draft_tokens(3);
  EXPECT_EQ(TranslateGenerate(request_, "tenant", Context()).status().field(), "kv_policy.draft_tokens");
}

TEST_F(Translate, WhatDraftsAreMadeOnIsTheConfigurationsWhereTheRequestIsSilent) {
  drafters_ = {"ngram", "compressed_kv"};
  request_limits_.compressing_drafters = {"compressed_kv"};
  v1::KvPolicy& policy = *request_.mutable_kv_policy();
  policy.set_exactness(v1::KvPolicy::LOSSLESS);
  engine::Request::Speculation speculation = Run().request.speculation;
  EXPECT_EQ(speculation.drafter, "compressed_kv");
  EXPECT_EQ(speculation.compressor, "k8v4");
  EXPECT_FALSE(speculation.kv_budget.has_value()) << "it keeps every token";
  policy.set_compressor("centroid");
  EXPECT_EQ(Run().request.speculation.kv_budget, 0.5F);
  policy.set_kv_budget(0.25F);
  EXPECT_EQ(Run().request.speculation.kv_budget, 0.25F);
  policy.set_drafter("ngram");  // The engine's to refuse.
  EXPECT_EQ(Run().request.speculation.compressor, "centroid");
  policy.clear_compressor();
  policy.clear_kv_budget();
  EXPECT_TRUE(Run().request.speculation.compressor.empty());
}

// --- Compressed KV ---

TEST_F(Translate, ApproximateRequestsGetTheDeploymentsCompressorAndBudget) {
  v1::KvPolicy& policy = *request_.mutable_kv_policy();
  EXPECT_FALSE(Run().request.approximation.has_value());
  policy.set_exactness(v1::KvPolicy::APPROXIMATE);
  EXPECT_EQ(Run().request.approximation->compressor, "centroid");
  EXPECT_EQ(Run().request.approximation->kv_budget, 0.5F);
  policy.set_compressor("streaming");
  policy.set_kv_budget(0.25F);
  EXPECT_EQ(Run().request.approximation->compressor, "streaming");
  EXPECT_EQ(Run().request.approximation->kv_budget, 0.25F);
  policy.clear_kv_budget();
  policy.set_compressor("int8");
  EXPECT_FALSE(Run().request.approximation->kv_budget.has_value()) << "it keeps every token";
  approximate_ = {.allowed = true, .compressor = "kivi4", .kv_budget = 0.3};
  policy.clear_compressor();
  EXPECT_EQ(Run().request.approximation->compressor, "kivi4");
}

TEST_F(Translate, ExactRequestsMayNotTellHowToCompress) {
  request_.mutable_kv_policy()->set_compressor("centroid");
  Status status = TranslateGenerate(request_, "tenant", Context()).status();
  EXPECT_EQ(status.field(), "kv_policy.compressor");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  request_.mutable_kv_policy()->set_kv_budget(0.5F);
  EXPECT_EQ(TranslateGenerate(request_, "tenant", Context()).status().field(), "kv_policy.kv_budget");
  request_.mutable_kv_policy()->set_exactness(v1::KvPolicy::APPROXIMATE);
  request_.mutable_kv_policy()->set_compressor(std::string(257, 'x'));
  EXPECT_EQ(TranslateGenerate(request_, "tenant", Context()).status().field(), "kv_policy.compressor");
}

TEST_F(Translate, AnswersOnAViewSaySo) {
  v1::Finished finished;
  engine::FinishedEvent event;
  event.kv_bytes = 1000;
  FillFinished(Run().form, event, finished);
  EXPECT_TRUE(finished.kv().exact());
  event.view = engine::ViewReport{};
  FillFinished(Run().form, event, finished);
  EXPECT_TRUE(finished.kv().exact()) << "it ended before a view paid";
  EXPECT_EQ(finished.kv().fast_tier_bytes(), 1000);
  event.view = engine::ViewReport{.compressor = "int8", .bytes = 600};
  FillFinished(Run().form, event, finished);
  EXPECT_FALSE(finished.kv().exact());
  EXPECT_EQ(finished.kv().compressor(), "int8");
  EXPECT_EQ(finished.kv().fast_tier_bytes(), 600);
  EXPECT_EQ(finished.kv().full_bytes(), 1000);
}

TEST_F(Translate, ReportsOfSpeculationReachTheAnswer) {
  v1::Finished finished;
  engine::FinishedEvent event;
  event.speculation = {.rounds = 3, .drafted_tokens = 12, .accepted_tokens = 7, .fallback_reason = "unprofitable"};
  FillFinished({}, event, finished);
  EXPECT_EQ(finished.speculation().rounds(), 3);
  EXPECT_EQ(finished.speculation().drafted_tokens(), 12);
  EXPECT_EQ(finished.speculation().accepted_tokens(), 7);
  EXPECT_EQ(finished.speculation().fallback_reason(), "unprofitable");
  EXPECT_TRUE(finished.kv().exact());
}

TEST_F(Translate, AllowedIdsAreSortedWithoutRepeats) {
  for (const int32_t id : {9, 3, 9, 1}) request_.mutable_sampling()->add_allowed_token_ids(id);
  EXPECT_EQ(Run().request.sampling.allowed_token_ids, (std::vector<TokenId>{TokenId(1), TokenId(3), TokenId(9)}));
}

TEST_F(Translate, AnAnswerInOneMessageHoldsOnlySoManyLogprobs) {
  struct Case {
    const char* name;
    bool stream;
    int32_t max_tokens, logprobs;
    bool bits;
    std::optional<int32_t> prompt_logprobs;
    const char* field;  // Null: taken.
  };
  limits_.message_logprobs_max = 40;
  for (const Case& c : std::vector<Case>{
           {"as many as fit", false, 20, 1, false, {}, nullptr},
           {"one token more", false, 21, 1, false, {}, "output.logprobs"},
           {"one alternative more", false, 20, 2, false, {}, "output.logprobs"},
           {"streamed", true, 21, 1, false, {}, nullptr},
           {"max_tokens beyond the model counts as what it gives", false, 1000, 0, false, {}, "output.logprobs"},
           {"bits alone", false, 41, -1, true, {}, "output.logprobs"},
           {"none asked for", false, 41, -1, false, {}, nullptr},
           {"together with the prompt's", false, 20, 1, false, 0, "output.prompt_logprobs"},
           {"streamed beside the prompt's", true, 20, 1, false, 39, nullptr}}) {
    request_.clear_output();
    request_.mutable_stopping()->set_max_tokens(c.max_tokens);
    v1::Output& output = *request_.mutable_output();
    request_.set_stream(c.stream);
    if (c.logprobs >= 0) output.set_logprobs(c.logprobs);
    output.set_logprob_bits(c.bits);
    if (c.prompt_logprobs) output.set_prompt_logprobs(*c.prompt_logprobs);
    const StatusOr<TranslatedRequest> result = TranslateGenerate(request_, "tenant", Context());
    EXPECT_EQ(result.ok(), c.field == nullptr) << c.name;
    if (c.field != nullptr) {
      EXPECT_EQ(result.status().field(), c.field) << c.name;
    }
  }
}

TEST_F(Translate, DetokenizeRefusesTextBeyondTheLimitThoughItsIdsAreFew) {
  const std::string text = "the model writes the same words again and again";
  const StatusOr<std::vector<TokenId>> ids = tokenizer_->Encode(text, models::ControlTokens::kStayText, false, {});
  ASSERT_TRUE(ids.ok());
  ASSERT_LT(ids->size(), text.size());
  v1::DetokenizeRequest request;
  for (const TokenId id : *ids) request.add_ids(id.value());
  limits_.text_bytes_max = static_cast<int64_t>(text.size());
  const StatusOr<std::string> whole = TranslateDetokenize(request, Context());
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(*whole, text);
  limits_.text_bytes_max = static_cast<int64_t>(text.size()) - 1;
  EXPECT_EQ(TranslateDetokenize(request, Context()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Translate, ModelInfoTellsTheLimitsThatAreEnforced) {
  request_limits_.usable_ids = 2000;
  request_limits_.pages = 4;
  const v1::ModelInfo info = TranslateModelInfo(name_, spec_, request_limits_);
  EXPECT_EQ(info.vocabulary_size(), 2048);
  EXPECT_EQ(info.token_ids(), 2000);
  EXPECT_EQ(info.max_sequence_tokens(), engine::MaxRequestTokens(request_limits_));
  EXPECT_LT(info.max_sequence_tokens(), spec_.max_sequence_tokens);
}

TEST(Limits, NoConfiguredTextExceedsWhatIsTokenized) {
  const config::Field* field = config::FindField("limits.text_bytes_max");
  ASSERT_NE(field, nullptr);
  EXPECT_EQ(std::get<config::BytesKind>(field->kind).max, static_cast<int64_t>(models::kTextBytesMax));
}

TEST(ToGrpcStatus, KeepsCodeMessageAndField) {
  EXPECT_TRUE(ToGrpcStatus(OkStatus()).ok());
  const grpc::Status status = ToGrpcStatus(InvalidArgument("sampling.top_p: no", "sampling.top_p"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "sampling.top_p: no");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), 3);
  EXPECT_EQ(details.details_size(), 2) << "BadRequest and ErrorInfo";
}

}  // namespace
}  // namespace invar::server
