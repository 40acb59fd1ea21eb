// Qwen3: dense, per-head norms of q and k before rope, head_dim of its own.
#include "models/stack/stack_plan.h"

namespace invar::models {

StatusOr<StackPlan> ReadQwen3(ConfigReader config) {
  StackPlan plan{.architecture = config.String("model_type"), .tensor_prefix = "model."};
  ReadCommon(config, plan);
  ReadAttention(config, 1.0, plan);
  ReadOptionalWindows(config, plan);
  plan.attention.qk_norm = true;
  config.Expect("use_qk_norm", true);
  plan.attention.qkv_bias = plan.attention.output_bias = config.Bool("attention_bias", false);
  plan.tied_embeddings = config.Bool("tie_word_embeddings", false);
  SetMlps(ReadSwiGlu(config, false), plan);
  if (!config.status().ok()) return config.status();
  return plan;
}

}  // namespace invar::models
