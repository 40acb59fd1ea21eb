// Passed over, each of these would give plausible nonsense: a fine-tune or a relative of a family here may keep its
// model_type and its tensors, and compute with them differently. A new one: a row. (pretraining_tp is none of them: it
// cut products into parts, and the transformers library does not read it any more.)
#include "models/config/foreign_fields.h"

namespace invar::models {
namespace {

struct ForeignField {
  const char* key;
  const char* neutral;  // JSON of the value at which it changes nothing; null: only its absence does.
};

constexpr ForeignField kForeignFields[] = {
    // Scores and logits.
    {"attn_logit_softcapping", "null"},
    {"final_logit_softcapping", "null"},
    {"attn_temperature_tuning", "false"},
    {"query_pre_attn_scalar", "null"},
    {"attention_multiplier", "null"},
    {"logits_scaling", "1.0"},
    {"logit_scale", "1.0"},
    {"use_logn_attn", "false"},
    {"clip_qkv", "null"},
    // What each position sees.
    {"alibi", "false"},
    {"use_alibi", "false"},
    {"attention_chunk_size", "null"},
    {"dual_chunk_attention_config", "null"},
    {"no_rope_layers", "null"},
    {"no_rope_layer_interval", "null"},
    {"rope_interleave", "false"},
    {"use_dynamic_ntk", "false"},
    {"use_mrope", "false"},
    {"use_bidirectional_attention", "false"},
    {"is_encoder_decoder", "false"},
    {"add_cross_attention", "false"},
    // The residual stream.
    {"embedding_multiplier", "1.0"},
    {"residual_multiplier", "1.0"},
    {"scale_emb", "1.0"},
    {"scale_depth", "null"},
    {"dim_model_base", "null"},
    {"use_parallel_residual", "false"},
    {"parallel_attn", "false"},
    // Other layers than those of the families.
    {"qk_layernorm", "false"},
    {"kv_lora_rank", "null"},
    {"q_lora_rank", "null"},
    {"num_kv_shared_layers", "0"},
    {"num_local_experts", "null"},
    {"n_routed_experts", "null"},
};

}  // namespace

void RefuseForeignFields(ConfigReader& config) {
  for (const ForeignField& field : kForeignFields) {
    const nlohmann::json neutral = nlohmann::json::parse(field.neutral);
    if (neutral.is_null()) {
      config.Refuse(field.key, "models that compute with it are not served");
    } else {
      config.Expect(field.key, neutral);
    }
  }
}

}  // namespace invar::models
