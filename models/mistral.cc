// Mistral: dense without biases; sliding_window, where not null, applies to all layers.
#include "models/stack_plan.h"

namespace invar::models {

StatusOr<StackPlan> ReadMistral(ConfigReader config) {
  StackPlan plan{.architecture = config.String("model_type"), .tensor_prefix = "model."};
  ReadCommon(config, plan);
  ReadAttention(config, 1.0, plan);
  config.Expect("attention_bias", false);
  const int32_t window = config.Int("sliding_window", 1, 0);
  for (LayerPlan& layer : plan.layers) layer.window = window;
  plan.tied_embeddings = config.Bool("tie_word_embeddings", false);
  plan.mlp.intermediate = config.Int("intermediate_size");
  if (!config.status().ok()) return config.status();
  return plan;
}

}  // namespace invar::models
