// Every option of a request at and beyond its edges: a named field or a well-defined request, never anything else.
#include "engine/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>

namespace invar::engine {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
const RequestLimits kLimits = {.usable_ids = 100,
                               .max_sequence_tokens = 256,
                               .page_tokens = 64,
                               .pages = 3,
                               .has_text = true,
                               .stop_strings_max = 64,
                               .stop_string_bytes_max = 1024,
                               .logprobs_max = 128};

Request Valid() {
  Request request;
  request.prompt = {TokenId(1), TokenId(2)};
  request.stopping.max_tokens = 10;
  return request;
}

struct Case {
  const char* name;
  StatusCode code;
  const char* field;
  std::function<void(Request&)> change;
  std::string reason = {};
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class ValidateTable : public testing::TestWithParam<Case> {};

TEST_P(ValidateTable, Judges) {
  Request request = Valid();
  GetParam().change(request);
  const Status status = ValidateRequest(request, kLimits);
  EXPECT_EQ(status.code(), GetParam().code) << status.ToString();
  EXPECT_EQ(status.field(), GetParam().field);
  EXPECT_EQ(status.reason(), GetParam().reason);
}

constexpr auto kOk = StatusCode::kOk;
constexpr auto kBad = StatusCode::kInvalidArgument;

Request::Approximation Wish(const char* const compressor, const std::optional<float> kv_budget) {
  return {.compressor = compressor, .kv_budget = kv_budget};
}

const Case kCases[] = {
    {"Approximate", kOk, "", [](Request& r) { r.approximation = Wish("centroid", 0.5F); }},
    {"ApproximateInFewerBits", kOk, "", [](Request& r) { r.approximation = Wish("int8", std::nullopt); }},
    {"UnknownCompressor", kBad, "kv_policy.compressor", [](Request& r) { r.approximation = Wish("zip", 0.5F); }},
    {"CompressorThatGoesByASecondPass", kBad, "kv_policy.compressor",
     [](Request& r) { r.approximation = Wish("kvzip", 0.5F); }},
    {"CompressorThatIsShownQueriesOfAllTokens", kOk, "", [](Request& r) { r.approximation = Wish("h2o", 0.5F); }},
    {"CompressorThatIsShownQueries", kOk, "", [](Request& r) { r.approximation = Wish("snapkv:window=8", 0.5F); }},
    {"BudgetOfWhatKeepsAll", kBad, "kv_policy.kv_budget", [](Request& r) { r.approximation = Wish("int8", 0.5F); }},
    {"NoBudget", kBad, "kv_policy.kv_budget", [](Request& r) { r.approximation = Wish("centroid", std::nullopt); }},
    {"BudgetAboveAll", kBad, "kv_policy.kv_budget", [](Request& r) { r.approximation = Wish("centroid", 1.5F); }},
    {"BudgetNan", kBad, "kv_policy.kv_budget", [](Request& r) { r.approximation = Wish("centroid", NAN); }},
    {"ApproximateNeedsRoomForDegrees", StatusCode::kResourceExhausted, "stopping.max_tokens",
     [](Request& r) {
       r.approximation = Wish("centroid", 0.5F);
       r.stopping.max_tokens = 57;  // Of the three pages one is left, less what degrees may take: 56 tokens.
     }},
    {"Valid", kOk, "", [](Request&) {}},
    {"NoPrompt", kBad, "input", [](Request& r) { r.prompt.clear(); }},
    {"NegativeId", kBad, "input", [](Request& r) { r.prompt[0] = TokenId(-1); }},
    {"IdAtTheVocabulary", kBad, "input", [](Request& r) { r.prompt[0] = TokenId(100); }},
    {"LargestId", kBad, "input", [](Request& r) { r.prompt[0] = TokenId(INT32_MAX); }},
    {"LastId", kOk, "", [](Request& r) { r.prompt[0] = TokenId(99); }},
    {"PromptOverTheModel", kBad, "input", [](Request& r) { r.prompt.resize(257, TokenId(1)); }, kPromptTooLong},
    {"PromptOverThePool", kBad, "input", [](Request& r) { r.prompt.resize(193, TokenId(1)); }, kPromptTooLong},
    {"PromptOverThePoolWithoutOutput", kBad, "input",
     [](Request& r) {
       r.prompt.resize(193, TokenId(1));
       r.stopping.max_tokens = 0;
     },
     kPromptTooLong},
    {"PromptByTheNameOfItsCaller", kBad, "chat",
     [](Request& r) {
       r.prompt[0] = TokenId(-1);
       r.prompt_field = "chat";
     }},
    {"HintNegative", kBad, "cache.checkpoint_hints",
     [](Request& r) {
       r.cache.hints = {5, -1};
     }},
    {"HintBeyondTheModel", kBad, "cache.checkpoint_hints", [](Request& r) { r.cache.hints = {257}; }},
    {"HintAtItsEdges", kOk, "",
     [](Request& r) {
       r.cache.hints = {0, 256};
     }},
    {"PromptFillsThePool", kOk, "", [](Request& r) { r.prompt.resize(182, TokenId(1)); }},
    {"NeverFits", StatusCode::kResourceExhausted, "stopping.max_tokens",
     [](Request& r) { r.prompt.resize(183, TokenId(1)); }},
    {"LargestMaxTokensIsCutAtTheModelThenMeasured", StatusCode::kResourceExhausted, "stopping.max_tokens",
     [](Request& r) { r.stopping.max_tokens = INT32_MAX; }},
    {"NegativeMaxTokens", kBad, "stopping.max_tokens", [](Request& r) { r.stopping.max_tokens = -1; }},
    {"ZeroMaxTokens", kOk, "", [](Request& r) { r.stopping.max_tokens = 0; }},
    {"MinOverMax", kBad, "stopping.min_tokens", [](Request& r) { r.stopping.min_tokens = 11; }},
    {"NegativeMin", kBad, "stopping.min_tokens", [](Request& r) { r.stopping.min_tokens = -1; }},
    {"TemperatureNan", kBad, "sampling.temperature", [](Request& r) { r.sampling.temperature = kNan; }},
    {"TemperatureInf", kBad, "sampling.temperature", [](Request& r) { r.sampling.temperature = kInf; }},
    {"TemperatureNegative", kBad, "sampling.temperature", [](Request& r) { r.sampling.temperature = -1e-6F; }},
    {"TemperatureMinusZero", kOk, "", [](Request& r) { r.sampling.temperature = -0.0F; }},
    {"TemperatureTiny", kOk, "", [](Request& r) { r.sampling.temperature = 1e-38F; }},
    {"TemperatureAtItsEdge", kOk, "", [](Request& r) { r.sampling.temperature = 1000.0F; }},
    {"TemperatureHuge", kBad, "sampling.temperature", [](Request& r) { r.sampling.temperature = 1e9F; }},
    {"TopPZero", kBad, "sampling.top_p", [](Request& r) { r.sampling.top_p = 0.0F; }},
    {"TopPNan", kBad, "sampling.top_p", [](Request& r) { r.sampling.top_p = kNan; }},
    {"TopPAboveOne", kBad, "sampling.top_p", [](Request& r) { r.sampling.top_p = 1.001F; }},
    {"TopPTiny", kOk, "", [](Request& r) { r.sampling.top_p = 1e-38F; }},
    {"TopKNegative", kBad, "sampling.top_k", [](Request& r) { r.sampling.top_k = -1; }},
    {"TopKAboveTheVocabulary", kOk, "", [](Request& r) { r.sampling.top_k = 101; }},
    {"MinPNan", kBad, "sampling.min_p", [](Request& r) { r.sampling.min_p = kNan; }},
    {"MinPAboveOne", kBad, "sampling.min_p", [](Request& r) { r.sampling.min_p = 1.5F; }},
    {"RepetitionZero", kBad, "sampling.repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 0.0F; }},
    {"RepetitionNan", kBad, "sampling.repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = kNan; }},
    {"RepetitionInf", kBad, "sampling.repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = kInf; }},
    {"PresenceNan", kBad, "sampling.presence_penalty", [](Request& r) { r.sampling.presence_penalty = kNan; }},
    {"PresenceHuge", kBad, "sampling.presence_penalty", [](Request& r) { r.sampling.presence_penalty = 1e9F; }},
    {"FrequencyInf", kBad, "sampling.frequency_penalty", [](Request& r) { r.sampling.frequency_penalty = -kInf; }},
    {"BiasId", kBad, "sampling.logit_bias", [](Request& r) { r.sampling.logit_bias[100] = 1.0F; }},
    {"BiasNegativeId", kBad, "sampling.logit_bias", [](Request& r) { r.sampling.logit_bias[-1] = 1.0F; }},
    {"BiasNan", kBad, "sampling.logit_bias", [](Request& r) { r.sampling.logit_bias[1] = kNan; }},
    {"BiasAtItsEdge", kOk, "", [](Request& r) { r.sampling.logit_bias[1] = -100.0F; }},
    {"AllowedId", kBad, "sampling.allowed_token_ids", [](Request& r) { r.sampling.allowed_token_ids = {TokenId(-1)}; }},
    {"StopId", kBad, "stopping.stop_token_ids", [](Request& r) { r.stopping.stop_token_ids = {TokenId(100)}; }},
    {"EmptyStop", kBad, "stopping.stop", [](Request& r) { r.stopping.stop = {""}; }},
    {"LongStop", kBad, "stopping.stop", [](Request& r) { r.stopping.stop = {std::string(1025, 'a')}; }},
    {"ManyStops", kBad, "stopping.stop", [](Request& r) { r.stopping.stop.assign(65, "a"); }},
    {"NothingLeftToSample", kBad, "stopping.min_tokens",
     [](Request& r) {
       r.stopping.min_tokens = 1;
       r.stopping.stop_token_ids = {TokenId(5)};
       r.sampling.allowed_token_ids = {TokenId(5)};
     }},
    {"LogprobsNegative", kBad, "output.logprobs", [](Request& r) { r.output.logprobs = -1; }},
    {"LogprobsTooMany", kBad, "output.logprobs", [](Request& r) { r.output.logprobs = 129; }},
    {"PromptLogprobsTooMany", kBad, "output.prompt_logprobs", [](Request& r) { r.output.prompt_logprobs = 129; }},
};
TEST(Validate, SaysWhatToRaiseWhereTheBudgetIsTheLimit) {
  Request request = Valid();
  request.prompt.resize(193, TokenId(1));
  const Status budget = ValidateRequest(request, kLimits);
  EXPECT_NE(budget.message().find("engine.kv_budget"), std::string::npos) << budget.message();
  EXPECT_NE(budget.message().find("192"), std::string::npos) << budget.message();
  RequestLimits roomy = kLimits;
  roomy.pages = 100;
  request.prompt.resize(257, TokenId(1));
  const Status model = ValidateRequest(request, roomy);
  EXPECT_EQ(model.message().find("engine.kv_budget"), std::string::npos) << model.message();
  EXPECT_NE(model.message().find("256"), std::string::npos) << model.message();
}

INSTANTIATE_TEST_SUITE_P(All, ValidateTable, testing::ValuesIn(kCases), [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace invar::engine
