// The same model said in the old and in the new configuration layout computes the same bits; rope scaling follows its
// formulas; defaults of generation are the union of all files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "models/stack/stack_plan.h"
#include "models/text.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json ReadConfig(const std::string& folder) { return json::parse(std::ifstream(folder + "/config.json")); }

// Logits of the last token of a fixed prompt, from `golden`'s weights under `config`.
std::vector<float> LastLogits(const std::string& golden, const json& config) {
  const testing::TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(testing::GoldenFolder(golden))) {
    if (entry.is_regular_file() && entry.path().filename() != "config.json")
      fs::copy_file(entry.path(), fs::path(folder.path()) / entry.path().filename());
  }
  std::ofstream(folder.path() + "/config.json") << config.dump();
  StatusOr<testing::TinyModel> tiny = testing::LoadTinyModel(folder.path(), {});
  EXPECT_TRUE(tiny.ok()) << tiny.status().message();
  if (!tiny.ok()) return {};
  testing::SequenceArena arena(tiny->model->spec(), 1, 128);
  const std::vector<TokenId> tokens = testing::RandomTokens(100, tiny->model->spec().vocabulary_size, 3);
  const ForwardSpan span = arena.Span(0, tokens, 0, 1);
  const kernels::ConstF32View logits = tiny->model->Forward(arena.memory(), {&span, 1});
  return {logits.row(0), logits.row(0) + logits.cols};
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_FALSE(a.empty());
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

// rope_parameters becomes rope_theta, rope_scaling {type, ...} and partial_rotary_factor at the top; dtype torch_dtype.
json OldLayout(json config) {
  json rope = config["rope_parameters"];
  config.erase("rope_parameters");
  config["rope_theta"] = rope["rope_theta"];
  if (rope.contains("partial_rotary_factor")) config["partial_rotary_factor"] = rope["partial_rotary_factor"];
  const std::string type = rope["rope_type"];
  if (type == "default") {
    config["rope_scaling"] = nullptr;
  } else {
    for (const char* key : {"rope_theta", "rope_type", "partial_rotary_factor"}) rope.erase(key);
    rope["type"] = type;
    config["rope_scaling"] = rope;
  }
  config["torch_dtype"] = config["dtype"];
  config.erase("dtype");
  return config;
}

TEST(ConfigLayout, OldAndNewRopeFieldsGiveTheSameBits) {
  for (const char* golden : {"qwen3_5", "qwen3_5_moe", "qwen3", "qwen3-yarn", "llama", "mistral-swa", "qwen2"}) {
    SCOPED_TRACE(golden);
    const json config = ReadConfig(testing::GoldenFolder(golden));
    ExpectSameBits(LastLogits(golden, config), LastLogits(golden, OldLayout(config)));
  }
}

TEST(ConfigLayout, ExplicitLayerTypesAndAnIntervalGiveTheSameBits) {
  json config = ReadConfig(testing::GoldenFolder("qwen3_5"));
  const std::vector<float> by_interval = LastLogits("qwen3_5", config);
  config.erase("full_attention_interval");
  config["layer_types"] = {"linear_attention", "linear_attention", "linear_attention", "full_attention"};
  ExpectSameBits(by_interval, LastLogits("qwen3_5", config));
}

TEST(ConfigLayout, FieldsOfTheNestedSectionAreNotReplacedByDefaults) {
  json config = ReadConfig(testing::GoldenFolder("qwen3_5-vl"));
  const std::vector<float> stored = LastLogits("qwen3_5-vl", config);
  config["text_config"]["rope_parameters"]["rope_theta"] = 10000.0;  // The default of other loaders.
  EXPECT_NE(stored, LastLogits("qwen3_5-vl", config));
}

TEST(ConfigLayout, AnExplicitHeadDimIsNotReplacedByTheQuotient) {
  json config = ReadConfig(testing::GoldenFolder("llama"));
  const std::vector<float> stored = LastLogits("llama", config);
  config.erase("head_dim");  // 64 / 4 = 16, as stored.
  ExpectSameBits(stored, LastLogits("llama", config));
}

TEST(ConfigLayout, NullIsAbsenceWhereTheReferenceTakesItForThat) {
  json config = ReadConfig(testing::GoldenFolder("llama"));
  config.erase("head_dim");  // 64 / 4 = 16, as stored.
  const std::vector<float> absent = LastLogits("llama", config);
  for (const char* const key : {"head_dim", "layer_types", "rope_scaling", "torch_dtype", "pretraining_tp"}) {
    config[key] = nullptr;
  }
  ExpectSameBits(absent, LastLogits("llama", config));
}

// It once cut products into parts whose sum is the same but for rounding; the reference passes it over.
TEST(ConfigLayout, PretrainingTpChangesNothing) {
  json config = ReadConfig(testing::GoldenFolder("llama"));
  const std::vector<float> stored = LastLogits("llama", config);
  config["pretraining_tp"] = 2;
  ExpectSameBits(stored, LastLogits("llama", config));
}

TEST(ConfigLayout, AWindowThatIsAbsentIsThatOfTheFirstMistralAndNullIsNone) {
  json config = ReadConfig(testing::GoldenFolder("mistral"));
  const auto window = [&] {
    const StatusOr<StackPlan> plan = ParseStackPlan(config.dump(), "config.json");
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? plan->layers[0].window : -1;
  };
  config["sliding_window"] = nullptr;
  EXPECT_EQ(window(), 0);
  config.erase("sliding_window");
  EXPECT_EQ(window(), 4096);
}

TEST(ConfigLayout, WithoutMaxWindowLayersTheFirst28SeeEverything) {
  json config = ReadConfig(testing::GoldenFolder("qwen3"));
  for (const char* const key : {"max_window_layers", "layer_types"}) config.erase(key);
  config["use_sliding_window"] = true;
  config["sliding_window"] = 16;
  config["num_hidden_layers"] = 30;
  const StatusOr<StackPlan> plan = ParseStackPlan(config.dump(), "config.json");
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->layers[27].window, 0);
  EXPECT_EQ(plan->layers[28].window, 16);
}

RopePlan Rope(const json& config, const int32_t head_dim) {
  ConfigReader reader(config, "config.json");
  RopePlan plan = ReadRope(reader, head_dim, 1.0);
  EXPECT_TRUE(reader.status().ok()) << reader.status().message();
  return plan;
}

TEST(Rope, LinearDividesEveryFrequency) {
  const json base = {{"rope_theta", 10000.0}, {"max_position_embeddings", 64}};
  json scaled = base;
  scaled["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  const RopePlan plain = Rope(base, 16);
  const RopePlan linear = Rope(scaled, 16);
  ASSERT_EQ(plain.inverse_frequencies.size(), 8U);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(plain.inverse_frequencies[i], std::pow(10000.0, -static_cast<double>(i) / 8));
    EXPECT_DOUBLE_EQ(linear.inverse_frequencies[i], plain.inverse_frequencies[i] / 4);
  }
}

TEST(Rope, Llama3KeepsShortWavelengthsAndStretchesLongOnes) {
  const json config = {{"rope_theta", 500000.0},
                       {"max_position_embeddings", 131072},
                       {"rope_scaling",
                        {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}}}};
  const RopePlan plan = Rope(config, 128);
  EXPECT_DOUBLE_EQ(plan.inverse_frequencies[0], 1.0);
  EXPECT_DOUBLE_EQ(plan.inverse_frequencies[63], std::pow(500000.0, -126.0 / 128) / 8);
  for (size_t i = 1; i < 64; ++i) EXPECT_LT(plan.inverse_frequencies[i], plan.inverse_frequencies[i - 1]);
}

TEST(Rope, YarnScalesCosinesAndAllowsForMorePositions) {
  const json config = {
      {"rope_theta", 10000.0},
      {"max_position_embeddings", 64},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}}}};
  const RopePlan plan = Rope(config, 32);
  EXPECT_DOUBLE_EQ(plan.factor, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(plan.max_positions, 256);
  EXPECT_DOUBLE_EQ(plan.inverse_frequencies[0], 1.0);
  EXPECT_DOUBLE_EQ(plan.inverse_frequencies[15], std::pow(10000.0, -30.0 / 32) / 4);
}

TEST(GenerationDefaults, StopTokensAreTheUnionOfAllFiles) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/generation_config.json")
      << R"({"eos_token_id": 9, "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null})";
  std::ofstream(folder.path() + "/config.json") << R"({"eos_token_id": [7, 9], "text_config": {"eos_token_id": 5}})";
  std::ofstream(folder.path() + "/tokenizer_config.json")
      << R"({"eos_token": {"content": "<end>"}, "added_tokens_decoder": {"11": {"content": "<end>"}}})";
  const StatusOr<GenerationDefaults> defaults = LoadGenerationDefaults(folder.path(), nullptr);
  ASSERT_TRUE(defaults.ok()) << defaults.status().message();
  EXPECT_EQ(defaults->eos, (std::vector<TokenId>{TokenId(5), TokenId(7), TokenId(9), TokenId(11)}));
  EXPECT_TRUE(defaults->do_sample);
  EXPECT_FLOAT_EQ(defaults->temperature, 0.6F);
  EXPECT_FLOAT_EQ(defaults->top_p, 0.95F);
  EXPECT_FLOAT_EQ(defaults->min_p, 0.0F);
  EXPECT_EQ(defaults->top_k, 20);
}

TEST(GenerationDefaults, AStopTokenThatIsOnlySpeltIsLookedUpInTheTokenizer) {
  const StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(testing::AssetFolder("tiny-hybrid"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::optional<TokenId> end = (*tokenizer)->FindToken("<|im_end|>");
  ASSERT_TRUE(end.has_value());
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/tokenizer_config.json") << R"({"eos_token": "<|im_end|>"})";
  EXPECT_EQ(LoadGenerationDefaults(folder.path(), tokenizer->get())->eos, std::vector<TokenId>{*end});
  EXPECT_TRUE(LoadGenerationDefaults(folder.path(), nullptr)->eos.empty());
}

TEST(GenerationDefaults, MissingFilesGiveDefaults) {
  const testing::TemporaryFolder folder;
  const StatusOr<GenerationDefaults> defaults = LoadGenerationDefaults(folder.path(), nullptr);
  ASSERT_TRUE(defaults.ok());
  EXPECT_TRUE(defaults->eos.empty());
  EXPECT_FALSE(defaults->do_sample);
}

TEST(GenerationDefaults, SenselessValuesAreRefusedNamingFileAndKey) {
  for (const char* text : {R"({"top_p": 1.5})", R"({"top_p": "x"})", R"({"temperature": -1})", R"({"top_k": -1})",
                           R"({"eos_token_id": "a"})", R"({"eos_token_id": [1, -2]})", R"({"do_sample": 1})", "[]"}) {
    const testing::TemporaryFolder folder;
    std::ofstream(folder.path() + "/generation_config.json") << text;
    const StatusOr<GenerationDefaults> defaults = LoadGenerationDefaults(folder.path(), nullptr);
    ASSERT_FALSE(defaults.ok()) << text;
    EXPECT_EQ(defaults.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(defaults.status().message().find("generation_config.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace invar::models
