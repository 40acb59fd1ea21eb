// Qwen2 and 2.5: dense, biases of q, k and v always, of the output never.
#include "models/stack/stack_plan.h"

namespace invar::models {

StatusOr<StackPlan> ReadQwen2(ConfigReader config) {
  StackPlan plan{.architecture = config.String("model_type"), .tensor_prefix = "model."};
  ReadCommon(config, plan);
  ReadAttention(config, 1.0, plan);
  config.Expect("use_qk_norm", false);
  ReadOptionalWindows(config, plan);
  config.Expect("attention_bias", true);
  plan.attention.qkv_bias = true;
  plan.tied_embeddings = config.Bool("tie_word_embeddings", false);
  SetMlps(ReadSwiGlu(config, false), plan);
  if (!config.status().ok()) return config.status();
  return plan;
}

}  // namespace invar::models
