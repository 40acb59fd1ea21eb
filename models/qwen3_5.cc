// Qwen3.5 (also 3.6 and 3.8): Gated DeltaNet and gated full attention, dense MLP or experts. Published folders wrap
// the text model: its fields lie under text_config, its tensors under model.language_model.; text-only ones are flat.
#include "models/stack/stack_plan.h"

namespace invar::models {
namespace {

// The text model's section, its prefix, and whether the head is tied (said at the top; the section may repeat it).
ConfigReader TextSection(ConfigReader& top, const std::string& text_type, StackPlan& plan) {
  plan.architecture = top.String("model_type");
  if (plan.architecture == text_type) {
    plan.tensor_prefix = "model.";
    plan.tied_embeddings = top.Bool("tie_word_embeddings", false);
    return top;
  }
  plan.tensor_prefix = "model.language_model.";
  plan.config_section = "text_config.";
  std::optional<ConfigReader> section = top.Section("text_config");
  if (!section.has_value()) {
    top.Fail("text_config", "an object", top.Found("text_config"));
    return top;
  }
  if (section->String("model_type", text_type) != text_type) {
    section->Fail("model_type", "\"" + text_type + "\"", section->Found("model_type"));
  }
  CheckWeightType(top);
  for (const char* const key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    if (!top.Has(key) || top.Found(key) == section->Found(key)) continue;
    top.Fail(key, "the same value here and in text_config (" + section->Found(key) + ")", top.Found(key));
  }
  top.Refuse("quantization_config", "quantized weights are not supported; use the unquantized ones");
  plan.tied_embeddings = section->Bool("tie_word_embeddings", false);
  if (top.Has("tie_word_embeddings")) {
    if (section->Has("tie_word_embeddings") &&
        section->Found("tie_word_embeddings") != top.Found("tie_word_embeddings")) {
      section->Fail("tie_word_embeddings", top.Found("tie_word_embeddings") + ", as at the top",
                    section->Found("tie_word_embeddings"));
    }
    plan.tied_embeddings = top.Bool("tie_word_embeddings", false);
  }
  return *section;
}

}  // namespace

StatusOr<StackPlan> ReadQwen35(ConfigReader top) {
  StackPlan plan;
  ConfigReader config = TextSection(top, "qwen3_5_text", plan);
  ReadHybrid(config, plan);
  const std::shared_ptr<const MlpPlan> mlp = ReadSwiGlu(config, false);
  SetMlps(mlp, plan);
  ReadMtp(config, "mtp_num_hidden_layers", mlp, plan);
  if (!config.status().ok()) return config.status();
  return plan;
}

StatusOr<StackPlan> ReadQwen35Moe(ConfigReader top) {
  StackPlan plan;
  ConfigReader config = TextSection(top, "qwen3_5_moe_text", plan);
  ReadHybrid(config, plan);
  config.Expect("norm_topk_prob", true);
  const std::shared_ptr<const MlpPlan> mlp = ReadExperts(config);
  SetMlps(mlp, plan);
  ReadMtp(config, "mtp_num_hidden_layers", mlp, plan);
  if (!config.status().ok()) return config.status();
  return plan;
}

}  // namespace invar::models
