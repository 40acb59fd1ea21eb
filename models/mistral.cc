// Mistral: dense without biases; sliding_window, where not null, applies to all layers. Where it is absent, it is that
// of the first model, as the transformers library has it.
#include "models/stack/stack_plan.h"

namespace invar::models {

StatusOr<StackPlan> ReadMistral(ConfigReader config) {
  StackPlan plan{.architecture = config.String("model_type"), .tensor_prefix = "model."};
  ReadCommon(config, plan);
  ReadAttention(config, 1.0, plan);
  config.Expect("use_qk_norm", false);
  config.Expect("attention_bias", false);
  const int32_t window = config.IsNull("sliding_window") ? 0 : config.Int("sliding_window", 1, 4096);
  for (LayerPlan& layer : plan.layers) layer.window = window;
  CheckLayerTypesAre(config, plan, window > 0 ? "sliding_attention" : "full_attention");
  plan.tied_embeddings = config.Bool("tie_word_embeddings", false);
  SetMlps(ReadSwiGlu(config, false), plan);
  if (!config.status().ok()) return config.status();
  return plan;
}

}  // namespace invar::models
