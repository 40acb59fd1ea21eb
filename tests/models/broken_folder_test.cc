// Folders that lie or contradict themselves are refused within a second, and the message names file, key or tensor,
// what was wanted and what was found. Each case changes one thing in a good folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/cpu_seconds.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
void WriteAll(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// A golden folder's copy to break.
class Folder {
 public:
  explicit Folder(const std::string& golden) {
    for (const auto& entry : fs::directory_iterator(testing::GoldenFolder(golden))) {
      if (entry.is_regular_file()) fs::copy_file(entry.path(), path() / entry.path().filename());
    }
  }
  fs::path path() const { return folder_.path(); }

  // RFC 7396: null removes a key.
  void PatchConfig(const json& patch) {
    json config = json::parse(ReadAll(path() / "config.json"));
    config.merge_patch(patch);
    WriteAll(path() / "config.json", config.dump());
  }
  // Rewrites the file with a changed header and data.
  void PatchWeights(const std::function<void(json& header, std::string& data)>& change,
                    const std::string& file = "model.safetensors") {
    const std::string bytes = ReadAll(path() / file);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    json header = json::parse(bytes.substr(8, length));
    std::string data = bytes.substr(8 + length);
    change(header, data);
    WriteRaw(header.dump(), data, file);
  }
  void WriteRaw(const std::string& header, const std::string& data, const std::string& file = "model.safetensors") {
    const uint64_t length = header.size();
    WriteAll(path() / file, std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  }

 private:
  testing::TemporaryFolder folder_;
};

struct Broken {
  std::string name;
  std::string golden;
  std::function<void(Folder&)> damage;
  std::vector<std::string> message_parts;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

// --- Shorthands of the table ---
Broken Config(const std::string& name, const std::string& golden, const json& patch, std::vector<std::string> parts) {
  parts.emplace_back("config.json");
  return {name, golden, [patch](Folder& folder) { folder.PatchConfig(patch); }, std::move(parts)};
}
Broken Weights(const std::string& name, std::function<void(json&, std::string&)> change,
               std::vector<std::string> parts) {
  parts.emplace_back("model.safetensors");
  return {name, "qwen3_5", [change](Folder& folder) { folder.PatchWeights(change); }, std::move(parts)};
}
Broken RawHeader(const std::string& name, const std::string& header, std::vector<std::string> parts) {
  parts.emplace_back("model.safetensors");
  return {name, "qwen3_5", [header](Folder& folder) { folder.WriteRaw(header, std::string(64, '\0')); },
          std::move(parts)};
}
Broken HeaderLength(const std::string& name, const uint64_t length) {
  return {name,
          "qwen3_5",
          [length](Folder& folder) {
            std::string bytes = ReadAll(folder.path() / "model.safetensors");
            std::memcpy(bytes.data(), &length, 8);
            WriteAll(folder.path() / "model.safetensors", bytes);
          },
          {"model.safetensors", "header"}};
}
// Null itself, which a merge patch cannot say.
Broken NullConfig(const std::string& golden, const std::string& pointer) {
  const std::string key = pointer.substr(pointer.rfind('/') + 1);
  return {"null_" + key + "_in_" + golden,
          golden,
          [pointer](Folder& folder) {
            json config = json::parse(ReadAll(folder.path() / "config.json"));
            config[json::json_pointer(pointer)] = nullptr;
            WriteAll(folder.path() / "config.json", config.dump());
          },
          {"config.json", key, "found null"}};
}
const char* const kNorm = "model.norm.weight";

std::vector<Broken> ConfigCases() {
  return {
      Config("unknown_architecture", "qwen3_5", {{"model_type", "qwen4_exp"}},
             {"model_type", "qwen4_exp", "wanted one of"}),
      Config("no_architecture", "qwen3_5", {{"model_type", nullptr}}, {"model_type", "found nothing"}),
      Config("unknown_activation", "llama", {{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"}),
      NullConfig("llama", "/hidden_act"),
      NullConfig("llama", "/rms_norm_eps"),
      NullConfig("llama", "/max_position_embeddings"),
      NullConfig("llama", "/tie_word_embeddings"),
      NullConfig("llama", "/rope_parameters/rope_theta"),
      NullConfig("qwen3", "/use_sliding_window"),
      NullConfig("qwen3_5", "/full_attention_interval"),
      NullConfig("qwen3_5", "/linear_num_key_heads"),
      NullConfig("qwen3_next", "/norm_topk_prob"),
      Config("unknown_rope_type", "llama", {{"rope_parameters", {{"rope_type", "longrope"}}}},
             {"rope_type", "longrope"}),
      Config("dynamic_rope", "mistral", {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
             {"rope_scaling.type", "dynamic"}),
      Config("no_theta_new_layout", "qwen3_5", {{"rope_parameters", {{"rope_theta", nullptr}}}},
             {"rope_theta", "found nothing"}),
      Config("no_theta_old_layout", "mistral", {{"rope_theta", nullptr}}, {"rope_theta", "found nothing"}),
      Config("two_thetas", "qwen3_5", {{"rope_theta", 12345.0}}, {"rope_theta", "12345"}),
      Config("two_partial_rotary_factors", "qwen3_5", {{"partial_rotary_factor", 0.5}},
             {"partial_rotary_factor", "0.5"}),
      Config("odd_rotary_dims", "qwen3_5", {{"rope_parameters", {{"partial_rotary_factor", 0.1}}}},
             {"partial_rotary_factor"}),
      Config("llama3_rope_without_factor", "llama", {{"rope_parameters", {{"factor", nullptr}}}},
             {"rope_parameters.factor"}),
      Config("llama3_rope_with_swapped_bands", "llama", {{"rope_parameters", {{"high_freq_factor", 0.5}}}},
             {"high_freq_factor"}),
      Config("yarn_with_zero_factor", "qwen3-yarn", {{"rope_parameters", {{"factor", 0}}}},
             {"rope_parameters.factor", "found 0"}),
      Config("no_attention", "qwen3_5",
             {{"layer_types", {"linear_attention", "linear_attention", "linear_attention", "linear_attention"}}},
             {"layer_types", "at least one layer of full_attention", "4 layers without"}),
      Config("layer_types_too_short", "qwen3_5", {{"layer_types", {"full_attention"}}},
             {"layer_types", "4 entries", "found 1"}),
      Config("unknown_layer_type", "qwen3_5",
             {{"layer_types", {"linear_attention", "linear_attention", "mamba", "full_attention"}}},
             {"layer_types", "mamba"}),
      Config("sliding_layers_without_a_window", "qwen3",
             {{"layer_types", {"sliding_attention", "full_attention", "full_attention"}}},
             {"layer_types", "use_sliding_window"}),
      Config("interval_contradicts_tensors", "qwen3_5", {{"full_attention_interval", 2}},
             {"model.layers.1.self_attn", "no such tensor"}),
      Config("quantized", "llama", {{"quantization_config", {{"quant_method", "fp8"}}}},
             {"quantization_config", "fp8"}),
      Config("softcapped_scores", "qwen3", {{"attn_logit_softcapping", 30.0}}, {"attn_logit_softcapping", "found 30"}),
      Config("scaled_residuals", "llama", {{"residual_multiplier", 0.22}}, {"residual_multiplier", "found 0.22"}),
      Config("clipped_projections", "mistral", {{"clip_qkv", 8}}, {"clip_qkv", "found 8"}),
      Config("linear_biases_of_position", "llama", {{"alibi", true}}, {"alibi", "wanted false"}),
      Config("nested_latent_attention", "qwen3_5-vl", {{"text_config", {{"kv_lora_rank", 512}}}},
             {"text_config.kv_lora_rank"}),
      Config("output_gate_off", "qwen3_5", {{"attn_output_gate", false}}, {"attn_output_gate"}),
      Config("other_output_gate", "qwen3_5", {{"output_gate_type", "sigmoid"}}, {"output_gate_type", "sigmoid"}),
      Config("other_state_type", "qwen3_5", {{"mamba_ssm_dtype", "bfloat16"}}, {"mamba_ssm_dtype"}),
      Config("class_of_another_family", "qwen3", {{"architectures", {"LlamaForCausalLM"}}},
             {"architectures", "LlamaForCausalLM", "Qwen3ForCausalLM"}),
      Config("a_classifier", "qwen3", {{"architectures", {"Qwen3ForSequenceClassification"}}}, {"architectures"}),
      Config("eight_bit_floats", "qwen3", {{"dtype", "float8_e4m3fn"}}, {"dtype", "float8_e4m3fn"}),
      Config("two_types_of_weights", "qwen3", {{"torch_dtype", "float16"}}, {"torch_dtype", "bfloat16", "float16"}),
      Config("part_of_a_head_turns_in_llama", "llama", {{"partial_rotary_factor", 0.5}},
             {"partial_rotary_factor", "found 0.5"}),
      Config("default_rope_with_a_factor", "qwen3", {{"rope_parameters", {{"factor", 2.0}}}},
             {"rope_parameters.factor", "found 2"}),
      Config("yarn_with_swapped_bands", "qwen3-yarn", {{"rope_parameters", {{"beta_fast", 1.0}, {"beta_slow", 32.0}}}},
             {"beta_fast", "beta_slow"}),
      Config("sliding_layers_in_llama", "llama",
             {{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}},
             {"layer_types", "sliding_attention"}),
      Config("norms_of_queries_in_llama", "llama", {{"use_qk_norm", true}}, {"use_qk_norm"}),
      Config("negative_first_window", "qwen2", {{"max_window_layers", -1}}, {"max_window_layers", "found -1"}),
      Config("windows_said_twice", "qwen3",
             {{"use_sliding_window", true},
              {"sliding_window", 16},
              {"max_window_layers", 0},
              {"layer_types", {"full_attention", "full_attention", "sliding_attention"}}},
             {"layer_types", "max_window_layers 0"}),
      Config("layers_said_twice", "qwen3_5-vl", {{"num_hidden_layers", 9}}, {"num_hidden_layers", "found 9"}),
      Config("ten_million_experts", "qwen3_5_moe", {{"num_experts", 10'000'000}}, {"num_experts"}),
      Config("a_million_experts", "qwen3_5_moe", {{"num_experts", 1'000'000}}, {"wanted shape"}),
      Config("head_of_two_billion", "qwen3", {{"head_dim", 2147483646}}, {"head_dim", "found 2147483646"}),
      Config("head_of_a_million", "qwen3", {{"head_dim", 1 << 20}}, {"head_dim", "num_attention_heads"}),
      Config("hidden_of_two_billion", "qwen3", {{"hidden_size", 2147483647}, {"head_dim", nullptr}},
             {"hidden_size", "found 2147483647"}),
      Config("key_heads_that_wrap_around", "qwen3_5", {{"linear_key_head_dim", 16 + (1 << 30)}},
             {"linear_key_head_dim"}),
      Config("a_million_key_heads", "qwen3_next",
             {{"linear_num_key_heads", 1 << 20},
              {"linear_num_value_heads", 1 << 20},
              {"linear_key_head_dim", 1},
              {"linear_value_head_dim", 1}},
             {"wanted shape"}),
      Config("kv_heads_do_not_divide", "llama", {{"num_key_value_heads", 3}}, {"num_key_value_heads", "found 3"}),
      Config("value_heads_do_not_divide", "qwen3_5", {{"linear_num_value_heads", 3}}, {"linear_num_value_heads"}),
      Config("zero_layers", "llama", {{"num_hidden_layers", 0}}, {"num_hidden_layers", "found 0"}),
      Config("negative_hidden", "llama", {{"hidden_size", -64}}, {"hidden_size", "found -64"}),
      Config("huge_vocabulary", "llama", {{"vocab_size", 9223372036854775807}}, {"vocab_size"}),
      Config("hidden_as_text", "llama", {{"hidden_size", "64"}}, {"hidden_size", "\"64\""}),
      Config("hidden_as_fraction", "llama", {{"hidden_size", 64.5}}, {"hidden_size", "64.5"}),
      Config("huge_epsilon", "llama", {{"rms_norm_eps", 1e300}}, {"rms_norm_eps", "below 1"}),
      Config("positions_of_three_axes", "qwen2", {{"use_mrope", true}}, {"use_mrope"}),
      Config("nan_like_epsilon", "llama", {{"rms_norm_eps", 0}}, {"rms_norm_eps"}),
      Config("fewer_layers_than_tensors", "llama", {{"num_hidden_layers", 2}}, {"model.layers.2"}),
      Config("more_layers_than_tensors", "llama", {{"num_hidden_layers", 4}}, {"model.layers.3", "no such tensor"}),
      Config("hidden_contradicts_tensors", "llama", {{"hidden_size", 128}}, {"wanted shape", "found [384, 64]"}),
      Config("untied_without_head", "qwen3_5", {{"tie_word_embeddings", false}}, {"lm_head.weight", "no such tensor"}),
      Config("more_experts_chosen_than_there_are", "qwen3_5_moe", {{"num_experts_per_tok", 7}},
             {"num_experts_per_tok"}),
      Config("experts_missing", "qwen3_next", {{"num_experts", 7}}, {"mlp.gate.weight"}),
      Config("dense_layer_outside_the_stack", "qwen3_next", {{"mlp_only_layers", {1, 9}}}, {"mlp_only_layers", "9"}),
      Config("nested_section_missing", "qwen3_5-vl", {{"text_config", nullptr}}, {"text_config"}),
      Config("head_of_half_a_layer", "qwen3_5-vl", {{"text_config", {{"mtp_num_hidden_layers", 0.5}}}},
             {"text_config.mtp_num_hidden_layers"}),
      Config("nested_section_of_another_type", "qwen3_5-vl", {{"text_config", {{"model_type", "qwen3"}}}},
             {"text_config.model_type"}),
      Config("nested_tie_contradicts", "qwen3_5-vl", {{"text_config", {{"tie_word_embeddings", true}}}},
             {"tie_word_embeddings"}),
      Config("nested_activation", "qwen3_5-vl", {{"text_config", {{"hidden_act", "relu"}}}},
             {"text_config.hidden_act"}),
      {"duplicate_key",
       "llama",
       [](Folder& f) {
         std::string text = ReadAll(f.path() / "config.json");
         text.insert(text.find('{') + 1, "\"hidden_size\": 32,");
         WriteAll(f.path() / "config.json", text);
       },
       {"config.json", "hidden_size", "uplicate"}},
      {"config_is_no_json", "llama", [](Folder& f) { WriteAll(f.path() / "config.json", "{"); }, {"config.json"}},
      {"config_is_a_list", "llama", [](Folder& f) { WriteAll(f.path() / "config.json", "[]"); }, {"config.json"}},
      {"config_is_missing", "llama", [](Folder& f) { fs::remove(f.path() / "config.json"); }, {"config.json"}},
      {"attention_bias_contradicts_tensors",
       "qwen2",
       [](Folder& f) {
         f.PatchConfig({{"model_type", "llama"}, {"architectures", nullptr}});
       },
       {"k_proj.bias"}},
  };
}

std::vector<Broken> WeightCases() {
  return {
      HeaderLength("header_length_zero", 0),
      HeaderLength("header_length_one", 1),
      HeaderLength("header_length_past_the_file", 10'000'000),
      HeaderLength("header_length_2_to_63", uint64_t{1} << 63),
      HeaderLength("header_length_max", UINT64_MAX),
      HeaderLength("header_length_above_100_mb", 100'000'001),
      RawHeader("header_is_a_list", "[]", {"header"}),
      RawHeader("header_starts_with_a_space", " {}", {"header"}),
      RawHeader("header_is_cut", "{\"a\": {\"dtype\"", {"header"}),
      RawHeader(
          "duplicate_tensor",
          R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},"a":{"dtype":"F32","shape":[8],"data_offsets":[32,64]}})",
          {"uplicate", "a"}),
      RawHeader(
          "overlapping_tensors",
          R"({"a":{"dtype":"F32","shape":[10],"data_offsets":[0,40]},"b":{"dtype":"F32","shape":[8],"data_offsets":[32,64]}})",
          {"\"b\"", "overlap"}),
      RawHeader(
          "hole_between_tensors",
          R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[8],"data_offsets":[32,64]}})",
          {"\"b\"", "holes"}),
      RawHeader("data_left_over", R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}})", {"found 64"}),
      RawHeader("begin_after_end", R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[64,32]}})", {"\"a\"", "[64,32]"}),
      RawHeader("negative_offset", R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[-32,0]}})", {"\"a\"", "-32"}),
      RawHeader("offset_outside_the_file", R"({"a":{"dtype":"F32","shape":[32],"data_offsets":[0,128]}})",
                {"\"a\"", "128"}),
      RawHeader("huge_offset", R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,18446744073709551615]}})",
                {"\"a\""}),
      RawHeader("fractional_offset", R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32.5]}})", {"\"a\"", "32.5"}),
      RawHeader("shape_product_overflows",
                R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,64]}})",
                {"\"a\"", "4294967296"}),
      RawHeader("negative_dimension", R"({"a":{"dtype":"F32","shape":[-16],"data_offsets":[0,64]}})", {"\"a\"", "-16"}),
      RawHeader("empty_tensor", R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", {"\"a\"", "positive"}),
      RawHeader("size_is_not_shape_times_type", R"({"a":{"dtype":"F32","shape":[15],"data_offsets":[0,64]}})",
                {"\"a\"", "60 bytes"}),
      RawHeader("unknown_dtype", R"({"a":{"dtype":"F5","shape":[16],"data_offsets":[0,64]}})", {"\"a\"", "F5"}),
      RawHeader("no_dtype", R"({"a":{"shape":[16],"data_offsets":[0,64]}})", {"\"a\"", "dtype"}),
      RawHeader("unknown_entry_key", R"({"a":{"dtype":"F32","shape":[16],"data_offsets":[0,64],"x":1}})",
                {"\"a\"", "\"x\""}),
      Weights("missing_tensor",
              [](json& header, std::string& data) {
                // The norm lies somewhere in the middle: rename it, so that nothing else is wrong.
                header["other"] = header[kNorm];
                header.erase(kNorm);
                (void)data;
              },
              {kNorm, "no such tensor"}),
      Weights("misshapen_tensor",
              [](json& header, std::string&) {
                header[kNorm]["shape"] = {6, 8};
              },
              {kNorm, "[48]", "[6, 8]"}),
      Weights("integer_weights", [](json& header, std::string&) { header[kNorm]["dtype"] = "I16"; },
              {kNorm, "I16", "BF16"}),
      Weights("extra_tensor",
              [](json& header, std::string& data) {
                header["model.layers.0.self_attn.extra.weight"] = {
                    {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {data.size(), data.size() + 4}}};
                data += std::string(4, '\0');
              },
              {"model.layers.0.self_attn.extra.weight"}),
      Weights("truncated_by_one_byte", [](json&, std::string& data) { data.pop_back(); }, {"tensor"}),
      {"incomplete_multi_token_head",
       "qwen3_5-vl",
       [](Folder& f) {
         f.PatchWeights([](json& header, std::string&) {
           header["mtp.other"] = header["mtp.norm.weight"];
           header.erase("mtp.norm.weight");
         });
       },
       {"model.safetensors", "mtp.norm.weight", "no such tensor"}},
      {"misshapen_multi_token_head",
       "qwen3_5-vl",
       [](Folder& f) {
         f.PatchWeights([](json& header, std::string&) { header["mtp.fc.weight"]["shape"] = {96, 48}; });
       },
       {"model.safetensors", "mtp.fc.weight", "[48, 96]", "[96, 48]"}},
      {"empty_file",
       "qwen3_5",
       [](Folder& f) { WriteAll(f.path() / "model.safetensors", ""); },
       {"model.safetensors", "0 bytes"}},
      {"no_weights", "qwen3_5", [](Folder& f) { fs::remove(f.path() / "model.safetensors"); }, {"model.safetensors"}},
      {"weights_are_a_pipe",
       "qwen3_5",
       [](Folder& f) {
         fs::remove(f.path() / "model.safetensors");
         ASSERT_EQ(mkfifo((f.path() / "model.safetensors").c_str(), 0600), 0);
       },
       {"model.safetensors", "regular file"}},
      {"weights_are_a_folder",
       "qwen3_5",
       [](Folder& f) {
         fs::remove(f.path() / "model.safetensors");
         fs::create_directory(f.path() / "model.safetensors");
       },
       {"model.safetensors"}},
      {"missing_shard",
       "qwen3",
       [](Folder& f) { fs::remove(f.path() / "model-00002-of-00002.safetensors"); },
       {"index.json", "model-00002-of-00002.safetensors"}},
      {"index_names_another_shard",
       "qwen3",
       [](Folder& f) {
         json index = json::parse(ReadAll(f.path() / "model.safetensors.index.json"));
         index["weight_map"]["model.embed_tokens.weight"] = "model-00002-of-00002.safetensors";
         WriteAll(f.path() / "model.safetensors.index.json", index.dump());
       },
       {"index.json", "model.embed_tokens.weight"}},
      {"index_misses_a_tensor",
       "qwen3",
       [](Folder& f) {
         json index = json::parse(ReadAll(f.path() / "model.safetensors.index.json"));
         index["weight_map"].erase("model.norm.weight");
         WriteAll(f.path() / "model.safetensors.index.json", index.dump());
       },
       {"index.json", "model.norm.weight"}},
      {"index_leaves_the_folder",
       "qwen3",
       [](Folder& f) {
         json index = json::parse(ReadAll(f.path() / "model.safetensors.index.json"));
         index["weight_map"]["model.norm.weight"] = "../../etc/passwd";
         WriteAll(f.path() / "model.safetensors.index.json", index.dump());
       },
       {"index.json", "model.norm.weight", "file name"}},
      {"index_is_empty",
       "qwen3",
       [](Folder& f) { WriteAll(f.path() / "model.safetensors.index.json", "{}"); },
       {"weight_map"}},
  };
}

std::vector<Broken> AllBroken() {
  std::vector<Broken> all = ConfigCases();
  for (Broken& broken : WeightCases()) all.push_back(std::move(broken));
  return all;
}

class BrokenFolder : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenFolder, IsRefusedWithinASecondNamingWhatIsWrong) {
  Folder folder(GetParam().golden);
  GetParam().damage(folder);
  const double start = CpuSeconds();
  const StatusOr<testing::TinyModel> tiny = testing::LoadTinyModel(folder.path().string(), {});
  const double seconds = CpuSeconds() - start;
  ASSERT_FALSE(tiny.ok()) << "the folder was accepted";
  // A contradiction between config.json and the weights shows at the tensor, so either file may be the one named.
  for (const std::string& part : GetParam().message_parts) {
    if (part == "config.json" && tiny.status().code() == StatusCode::kDataLoss) continue;
    EXPECT_THAT(tiny.status().message(), HasSubstr(part));
  }
  EXPECT_THAT(tiny.status().message(), HasSubstr(folder.path().string()));
  EXPECT_LT(seconds, 1.0);
}

// Shapes a backend does not compute with are found before any tensor is looked at, and are no crash later.
TEST(UnsupportedShape, IsRefusedByTheBackendThatLacksItNamingTheKey) {
  struct Case {
    std::string golden;
    json patch;
    std::string key, wanted, found;
  };
  const std::vector<Case> cases = {
      {"llama", {{"head_dim", 1026}}, "config.json: head_dim", "at most 1024 on the cpu backend", "found 1026"},
      {"qwen3_5",
       {{"linear_conv_kernel_dim", 9}},
       "config.json: linear_conv_kernel_dim",
       "1 to 8 on the cpu backend",
       "found 9"},
      {"qwen3_5-vl",
       {{"text_config", {{"linear_conv_kernel_dim", 9}}}},
       "config.json: text_config.linear_conv_kernel_dim",
       "1 to 8",
       "found 9"}};
  for (const Case& c : cases) {
    Folder folder(c.golden);
    folder.PatchConfig(c.patch);
    const Status refused = testing::LoadTinyModel(folder.path().string(), {.backend = "cpu", .isa = {}}).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    for (const std::string& part : {folder.path().string(), c.key, c.wanted, c.found}) {
      EXPECT_THAT(refused.message(), HasSubstr(part));
    }
    // The reference has no such limit: there the tensors' shapes are what is wrong.
    EXPECT_EQ(testing::LoadTinyModel(folder.path().string(), {}).status().code(), StatusCode::kDataLoss);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BrokenFolder, ::testing::ValuesIn(AllBroken()),
                         [](const auto& info) { return info.param.name; });

TEST(BrokenFolders, AreAtLeastForty) { EXPECT_GE(AllBroken().size(), 40U); }

// The other side of the table: the untouched copies load.
TEST(GoodFolder, LoadsAsACopy) {
  for (const char* golden :
       {"qwen3_5", "llama", "qwen3", "qwen3_next", "qwen3_5_moe", "qwen3_5-vl", "mistral", "qwen2"}) {
    const Folder folder(golden);
    const StatusOr<testing::TinyModel> tiny = testing::LoadTinyModel(folder.path().string(), {});
    EXPECT_TRUE(tiny.ok()) << tiny.status().message();
  }
}

}  // namespace
}  // namespace invar::models
