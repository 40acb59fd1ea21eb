// Fields that several families share. A setting that would change the arithmetic and is not implemented is refused
// here, since ignoring it would give plausible nonsense.
#include "models/stack/stack_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/config/foreign_fields.h"

namespace invar::models {
namespace {

// layer_types, checked for length and names; empty where absent.
std::vector<std::string> ReadLayerTypes(ConfigReader& config, const StackPlan& plan,
                                        const std::vector<std::string>& known) {
  std::vector<std::string> types = config.Strings("layer_types");
  if (!config.Has("layer_types")) return types;
  if (types.size() != plan.layers.size()) {
    config.Fail("layer_types", fmt::format("{} entries, as num_hidden_layers says", plan.layers.size()),
                fmt::format("{}", types.size()));
    types.resize(plan.layers.size());
  }
  for (const std::string& type : types) {
    if (std::find(known.begin(), known.end(), type) == known.end()) {
      config.Fail("layer_types", fmt::format("only {}", fmt::join(known, ", ")), "\"" + type + "\"");
    }
  }
  return types;
}

}  // namespace

void CheckWeightType(ConfigReader& config) {
  for (const char* const key : {"dtype", "torch_dtype"}) {
    const std::string type = config.String(key, "bfloat16");
    if (type == "bfloat16" || type == "float16" || type == "float32") continue;
    config.Fail(key, "bfloat16, float16 or float32", config.Found(key));
  }
  if (config.Has("dtype") && config.Has("torch_dtype") && config.Found("dtype") != config.Found("torch_dtype")) {
    config.Fail("torch_dtype", "the same as dtype (" + config.Found("dtype") + ")", config.Found("torch_dtype"));
  }
}

void CheckLayerTypesAre(ConfigReader& config, const StackPlan& plan, const std::string& only) {
  ReadLayerTypes(config, plan, {only});
}

void ReadCommon(ConfigReader& config, StackPlan& plan) {
  CheckWeightType(config);
  plan.vocabulary_size = config.Int("vocab_size");
  plan.hidden = config.Size("hidden_size");
  const double norm_eps = config.Positive("rms_norm_eps", 1e-6);
  if (norm_eps >= 1) config.Fail("rms_norm_eps", "a number below 1", config.Found("rms_norm_eps"));
  plan.norm_eps = static_cast<float>(norm_eps);
  constexpr int32_t kLayersMax = 4096;  // Far above any model; keeps a lying file from taking memory.
  const int32_t layers = config.Int("num_hidden_layers");
  if (layers > kLayersMax)
    config.Fail("num_hidden_layers", fmt::format("at most {}", kLayersMax), fmt::format("{}", layers));
  plan.layers.resize(static_cast<size_t>(std::min(layers, kLayersMax)));
  const std::shared_ptr<const MixerPlan> attention = ReadMixer("full_attention", config);
  for (LayerPlan& layer : plan.layers) layer.mixer = attention;
  if (config.String("hidden_act", "silu") != "silu") config.Fail("hidden_act", "\"silu\"", config.Found("hidden_act"));
  config.Refuse("quantization_config", "quantized weights are not supported; use the unquantized ones");
  RefuseForeignFields(config);
}

void ReadAttention(ConfigReader& config, const double partial_rotary_default, StackPlan& plan) {
  AttentionPlan& attention = plan.attention;
  attention.heads = config.Size("num_attention_heads");
  attention.kv_heads = config.Size("num_key_value_heads", attention.heads);
  if (!config.Has("head_dim") && plan.hidden % attention.heads != 0) {
    config.Fail("head_dim", "a value, since hidden_size is no multiple of num_attention_heads", "nothing");
  }
  attention.head_dim = config.Size("head_dim", std::max(plan.hidden / attention.heads, 1));
  if (attention.heads % attention.kv_heads != 0) {
    config.Fail("num_key_value_heads", fmt::format("a divisor of num_attention_heads {}", attention.heads),
                config.Found("num_key_value_heads"));
  }
  if (attention.head_dim % 2 != 0) config.Fail("head_dim", "an even number", fmt::format("{}", attention.head_dim));
  config.CheckProduct("head_dim", attention.head_dim, "num_attention_heads", attention.heads);
  attention.rope = ReadRope(config, attention.head_dim, partial_rotary_default);
}

void ReadOptionalWindows(ConfigReader& config, StackPlan& plan) {
  const std::vector<std::string> types = ReadLayerTypes(config, plan, {"full_attention", "sliding_attention"});
  const bool used = config.Bool("use_sliding_window", false);
  // Without use_sliding_window, sliding_window is a left-over of the base configuration.
  const int32_t window = used ? config.Int("sliding_window") : 0;
  const int32_t first = config.Int("max_window_layers", 0, 28);  // Where absent, as the transformers library has it.
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const bool slides = types.empty() ? used && static_cast<int32_t>(i) >= first : types[i] == "sliding_attention";
    if (slides && !used) {
      config.Fail("layer_types", "no \"sliding_attention\", since use_sliding_window is false",
                  fmt::format("it at layer {}", i));
    }
    if (used && config.Has("max_window_layers") && slides != (static_cast<int32_t>(i) >= first)) {
      config.Fail("layer_types", fmt::format("what max_window_layers {} says", first),
                  fmt::format("\"{}\" at layer {}", types[i], i));
    }
    if (slides) plan.layers[i].window = window;
  }
}

void ReadHybrid(ConfigReader& config, StackPlan& plan) {
  ReadCommon(config, plan);
  ReadAttention(config, 0.25, plan);
  plan.zero_centred_norms = true;
  plan.attention.output_gate = true;
  plan.attention.qk_norm = true;
  plan.attention.qkv_bias = plan.attention.output_bias = config.Bool("attention_bias", false);
  config.Expect("use_qk_norm", true);
  config.Expect("attn_output_gate", true);
  config.Expect("output_gate_type", "swish");
  config.Expect("mamba_ssm_dtype", "float32");
  if (config.Bool("use_sliding_window", false)) config.Fail("use_sliding_window", "false", "true");

  // An explicit list wins over the interval.
  const std::vector<std::string> types = ReadLayerTypes(config, plan, MixerNames());
  const int32_t interval = config.Int("full_attention_interval", 1, 4);
  std::map<std::string, std::shared_ptr<const MixerPlan>> mixers;  // Layers of a kind share it.
  for (size_t i = 0; i < plan.layers.size() && config.status().ok(); ++i) {
    const bool full = (static_cast<int32_t>(i) + 1) % interval == 0;
    const std::string type = !types.empty() ? types[i] : full ? "full_attention" : "linear_attention";
    std::shared_ptr<const MixerPlan>& mixer = mixers[type];
    if (mixer == nullptr) mixer = ReadMixer(type, config);
    plan.layers[i].mixer = mixer;
  }
  // Memory of sequences is counted in pages of KV; a stack without any is none of the families served here.
  if (config.status().ok() && mixers.count("full_attention") == 0) {
    config.Fail(types.empty() ? "full_attention_interval" : "layer_types", "at least one layer of full_attention",
                fmt::format("{} layers without", plan.layers.size()));
  }
}

void ReadMtp(ConfigReader& config, const std::string& layers_key, std::shared_ptr<const MlpPlan> mlp, StackPlan& plan) {
  const int32_t layers = config.Int(layers_key, 0, 1);
  const bool own_embeddings = config.Bool("mtp_use_dedicated_embeddings", false);
  plan.mtp = {
      .why_not = {}, .expected = config.Has(layers_key) && layers == 1 && !own_embeddings, .mlp = std::move(mlp)};
  if (layers != 1) plan.mtp.why_not = fmt::format("{} is {}, and heads of one layer are served", layers_key, layers);
  if (own_embeddings) plan.mtp.why_not = "mtp_use_dedicated_embeddings is true";
}

void SetMlps(std::shared_ptr<const MlpPlan> mlp, StackPlan& plan) {
  for (LayerPlan& layer : plan.layers) layer.mlp = mlp;
}

}  // namespace invar::models
