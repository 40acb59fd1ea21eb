// Tensor names and shapes are what the layers themselves require.
#include "models/random_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/split_mix64.h"
#include "kernels/bf16.h"
#include "models/stack/layer_stack.h"
#include "models/text/byte_alphabet.h"
#include "models/text/strict_json.h"
#include "models/weights/safetensors.h"

namespace invar::models {
namespace {

using Json = nlohmann::ordered_json;
using Tensor = SafetensorsWriter::Tensor;

struct HybridShape {
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim, heads_k, heads_v, dim, vocabulary;
  bool tied;
};

Json HybridConfig(const HybridShape& s) {
  return {{"architectures", {"Qwen3_5ForCausalLM"}},
          {"model_type", "qwen3_5_text"},
          {"dtype", "bfloat16"},
          {"vocab_size", s.vocabulary},
          {"hidden_size", s.hidden},
          {"intermediate_size", s.intermediate},
          {"num_hidden_layers", s.layers},
          {"num_attention_heads", s.heads},
          {"num_key_value_heads", s.kv_heads},
          {"head_dim", s.head_dim},
          {"linear_conv_kernel_dim", 4},
          {"linear_num_key_heads", s.heads_k},
          {"linear_num_value_heads", s.heads_v},
          {"linear_key_head_dim", s.dim},
          {"linear_value_head_dim", s.dim},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 262144},
          {"rms_norm_eps", 1e-6},
          {"attention_bias", false},
          {"tie_word_embeddings", s.tied},
          {"full_attention_interval", 4},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e7}, {"partial_rotary_factor", 0.25}}}};
}

struct DenseShape {
  const char* type;
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocabulary, positions;
  double theta;
  bool tied;
};

Json DenseConfig(const DenseShape& s) {
  return {{"model_type", s.type},
          {"dtype", "bfloat16"},
          {"vocab_size", s.vocabulary},
          {"hidden_size", s.hidden},
          {"intermediate_size", s.intermediate},
          {"num_hidden_layers", s.layers},
          {"num_attention_heads", s.heads},
          {"num_key_value_heads", s.kv_heads},
          {"head_dim", s.head_dim},
          {"hidden_act", "silu"},
          {"max_position_embeddings", s.positions},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", s.tied},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", s.theta}}}};
}

struct NamedShape {
  const char* name;
  Json (*config)();
};

// Published sizes; 35b-a3b is left to a config.json, since 70 GB are rarely wanted by name.
const std::array<NamedShape, 9>& Shapes() {
  static const std::array<NamedShape, 9> shapes = {{
      {"qwen3.5-11m",
       [] {
         return HybridConfig({256, 768, 8, 4, 2, 128, 4, 8, 64, 8192, true});
       }},
      {"qwen3.5-100m",
       [] {
         return HybridConfig({512, 1792, 12, 4, 2, 256, 8, 16, 128, 32768, true});
       }},
      {"qwen3.5-0.8b",
       [] {
         return HybridConfig({1024, 3584, 24, 8, 2, 256, 16, 16, 128, 248320, true});
       }},
      {"qwen3.5-4b",
       [] {
         return HybridConfig({2560, 9216, 32, 16, 4, 256, 16, 32, 128, 248320, true});
       }},
      {"qwen3.5-9b",
       [] {
         return HybridConfig({4096, 12288, 32, 16, 4, 256, 16, 32, 128, 248320, false});
       }},
      {"smollm2-135m",
       [] {
         return DenseConfig({"llama", 576, 1536, 30, 9, 3, 64, 49152, 8192, 1e5, true});
       }},
      {"smollm2-1.7b",
       [] {
         return DenseConfig({"llama", 2048, 8192, 24, 32, 32, 64, 49152, 8192, 1.3e5, true});
       }},
      {"qwen3-0.6b",
       [] {
         return DenseConfig({"qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 1e6, true});
       }},
      {"llama3.2-1b",
       [] {
         return DenseConfig({"llama", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 5e5, true});
       }},
  }};
  return shapes;
}

class Random {
 public:
  explicit Random(const uint64_t seed) : bits_(seed) {}
  uint64_t Next() { return bits_.Next(); }
  double Uniform() { return static_cast<double>(bits_.Next() >> 11) * 0x1p-53; }

 private:
  SplitMix64 bits_;
};

// Bf16 bits of scale * the standard normal's quantile (i + 0.5) / 4096: a value costs a look-up, so that a gigabyte of
// weights is made in about a second.
std::array<uint16_t, 4096> NormalTable(const double scale) {
  std::array<uint16_t, 4096> table{};
  for (size_t i = 0; i < table.size(); ++i) {
    const double p = (static_cast<double>(i) + 0.5) / static_cast<double>(table.size());
    double x = 0;  // Newton on the distribution function; 60 steps reach every tail of the table.
    for (int step = 0; step < 60; ++step) {
      const double error = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
      const double slope = std::max(std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846), 1e-4);
      x -= std::min(std::max(error / slope, -0.5), 0.5);
    }
    table[i] = kernels::Bf16FromFloat(static_cast<float>(scale * x));
  }
  return table;
}

void FillNormal(const std::span<std::byte> bytes, const double scale, Random& random) {
  const std::array<uint16_t, 4096> table = NormalTable(scale);
  const size_t count = bytes.size() / 2;
  for (size_t i = 0; i < count;) {
    uint64_t bits = random.Next();
    for (int j = 0; j < 5 && i < count; ++j, ++i, bits >>= 12)
      std::memcpy(bytes.data() + 2 * i, &table[bits & 4095], 2);
  }
}

void FillWith(const std::span<std::byte> bytes, const std::function<double()>& value) {
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    const uint16_t bits = kernels::Bf16FromFloat(static_cast<float>(value()));
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
}

bool EndsWith(const std::string& name, const char* end) { return name.ends_with(end); }

// Scales follow what training leaves behind: decays from seconds to hundreds of tokens, norms near their neutral value,
// projections that keep the variance, outputs at half of it.
void FillTensor(const Tensor& tensor, const bool zero_centred, const std::span<std::byte> bytes, Random& random) {
  const std::string& name = tensor.name;
  if (EndsWith(name, "A_log")) return FillWith(bytes, [&] { return std::log(0.5 + 7.5 * random.Uniform()); });
  if (EndsWith(name, "dt_bias")) {
    return FillWith(bytes, [&] {
      const double dt = 1e-3 * std::exp(random.Uniform() * std::log(100.0));
      return dt + std::log(-std::expm1(-dt));
    });
  }
  if (EndsWith(name, "norm.weight")) {
    const double centre = zero_centred && !EndsWith(name, "linear_attn.norm.weight") ? 0.0 : 1.0;
    return FillWith(bytes, [&] { return centre + 0.2 * (random.Uniform() - 0.5); });
  }
  if (EndsWith(name, "bias") || EndsWith(name, "embed_tokens.weight")) return FillNormal(bytes, 0.1, random);
  if (EndsWith(name, "conv1d.weight")) return FillNormal(bytes, 0.5, random);
  const bool output = name.find("o_proj") != std::string::npos || name.find("out_proj") != std::string::npos ||
                      name.find("down_proj") != std::string::npos;
  FillNormal(bytes, (output ? 0.5 : 1.0) / std::sqrt(static_cast<double>(tensor.shape.back())), random);
}

// UTF-8 of the character that spells `byte`; all lie below U+0800, so two bytes at most.
std::string AlphabetSpelling(const unsigned char byte) {
  const int32_t character = ByteToAlphabet(byte);
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

// 256 bytes, <|endoftext|> and <|im_end|>; no merges, so that a prompt of n bytes has n tokens.
std::string ByteTokenizer() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[AlphabetSpelling(static_cast<unsigned char>(byte))] = byte;
  Json added = Json::array();
  for (const auto& [id, content] : {std::pair{256, "<|endoftext|>"}, std::pair{257, "<|im_end|>"}}) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", false},
                            {"vocab", vocabulary},
                            {"merges", Json::array()}}}};
  return tokenizer.dump();
}

Status WriteText(const std::string& path, const std::string& text) {
  StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (Status s = file->Append(text); !s.ok()) return s;
  return file->Commit();
}

}  // namespace

std::vector<std::string> RandomModelShapes() {
  std::vector<std::string> names;
  for (const NamedShape& shape : Shapes()) names.emplace_back(shape.name);
  return names;
}

StatusOr<std::string> RandomModelConfig(const std::string& shape) {
  for (const NamedShape& named : Shapes()) {
    if (shape == named.name) return named.config().dump(1) + "\n";
  }
  return InvalidArgument(fmt::format("shape: wanted one of {} or the path of a config.json, found \"{}\"",
                                     fmt::join(RandomModelShapes(), ", "), shape));
}

Status MakeRandomModel(const RandomModelOptions& options) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(options.shape, error);
  StatusOr<std::string> config = is_file ? ReadFile(options.shape, 4 << 20) : RandomModelConfig(options.shape);
  if (!config.ok()) return config.status();
  StatusOr<StackPlan> plan = ParseStackPlan(*config, options.shape);
  if (!plan.ok()) return plan.status();
  std::filesystem::create_directories(options.folder, error);
  if (error) return Unavailable(options.folder + ": " + error.message());

  std::vector<Tensor> tensors;
  for (const RequiredTensor& tensor : ListTensors(*plan)) {
    tensors.push_back({.name = tensor.name, .dtype = "BF16", .shape = tensor.shape});
  }
  StatusOr<SafetensorsWriter> writer = SafetensorsWriter::Create(options.folder + "/model.safetensors", tensors);
  if (!writer.ok()) return writer.status();
  int64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) total += static_cast<int64_t>(writer->tensor(i).size());
  Random random(options.seed);
  int64_t done = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    FillTensor(tensors[i], plan->zero_centred_norms, writer->tensor(i), random);
    done += static_cast<int64_t>(writer->tensor(i).size());
    if (options.progress) options.progress(done, total);
  }
  if (Status s = writer->Commit(); !s.ok()) return s;
  if (Status s = WriteText(options.folder + "/config.json", *config); !s.ok()) return s;
  if (plan->vocabulary_size < 258) return OkStatus();  // Too small for the byte tokenizer: ids only.
  if (Status s = WriteText(options.folder + "/tokenizer.json", ByteTokenizer()); !s.ok()) return s;
  if (Status s = WriteText(options.folder + "/tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}\n"); !s.ok())
    return s;
  return WriteText(options.folder + "/generation_config.json",
                   "{\"eos_token_id\": [257, 256], \"do_sample\": false}\n");
}

}  // namespace invar::models
