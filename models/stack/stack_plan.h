// StackPlan: what a family's file makes of config.json: shapes and kinds of every layer, and where its tensors are.
// Everything below this line (layer_stack, mixers, mlps) knows plans only, never a family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/config/config_reader.h"
#include "models/stack/mixer_plan.h"
#include "models/stack/mlp_plan.h"
#include "models/stack/rope.h"

namespace invar::models {

struct LayerPlan {
  std::shared_ptr<const MixerPlan> mixer{};
  std::shared_ptr<const MlpPlan> mlp{};
  int32_t window = 0;  // Of attention; 0: all positions.
  // Of attention: the first position that queries see; what lies before is none of the layer's.
  int32_t first_seen = 0;
};

struct AttentionPlan {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  bool output_gate = false;  // q_proj holds [query, gate] per head; the output is multiplied by sigmoid(gate).
  bool qk_norm = false;
  bool qkv_bias = false;
  bool output_bias = false;
  RopePlan rope;
};

kernels::AttentionShape AttentionShapeOf(const AttentionPlan& plan, int32_t window);

// The multi-token head that checkpoints of some families carry beside the stack (mtp_head.h).
struct MtpPlan {
  std::string why_not = "its architecture defines none";  // Why one that is there is not served; empty: it is.
  bool expected = false;                                  // config.json says that there is one.
  std::shared_ptr<const MlpPlan> mlp{};
};

struct StackPlan {
  std::string architecture;         // model_type as config.json says it at the top.
  std::string config_section = {};  // "text_config." where config.json keeps the text model in a section.
  std::string tensor_prefix;        // "model." or "model.language_model."
  int32_t vocabulary_size = 0;
  int32_t hidden = 0;
  float norm_eps = 0.0F;
  bool zero_centred_norms = false;  // Norm weights are 1 + w.
  bool tied_embeddings = false;
  AttentionPlan attention{};
  std::vector<LayerPlan> layers{};
  MtpPlan mtp{};

  std::string LayerPrefix(const size_t layer) const { return tensor_prefix + "layers." + std::to_string(layer) + "."; }
};

// --- Parts families share. `config` is the text model's section; errors stay in it. ---

// dtype and torch_dtype: types of weights that are served, and no two of them.
void CheckWeightType(ConfigReader& config);
// layer_types, where the family's layers are all of one type.
void CheckLayerTypesAre(ConfigReader& config, const StackPlan& plan, const std::string& only);
// vocab_size, hidden_size, rms_norm_eps, layer count (all full attention, MLPs unset), activation, unsupported
// settings.
void ReadCommon(ConfigReader& config, StackPlan& plan);
// Heads, head_dim and rope.
void ReadAttention(ConfigReader& config, double partial_rotary_default, StackPlan& plan);
// layer_types of a dense family whose window belongs to `sliding_attention` layers (qwen2, qwen3).
void ReadOptionalWindows(ConfigReader& config, StackPlan& plan);
// What the hybrids share: gated full attention beside the mixers that layer_types names.
void ReadHybrid(ConfigReader& config, StackPlan& plan);
// All layers have `mlp`.
void SetMlps(std::shared_ptr<const MlpPlan> mlp, StackPlan& plan);
// The multi-token head, of as many layers as `layers_key` says; 1 where it says nothing.
void ReadMtp(ConfigReader& config, const std::string& layers_key, std::shared_ptr<const MlpPlan> mlp, StackPlan& plan);

// --- Families: one file each, one line each in registry.cc. `top` is the whole config.json. ---
StatusOr<StackPlan> ReadQwen35(ConfigReader top);
StatusOr<StackPlan> ReadQwen35Moe(ConfigReader top);
StatusOr<StackPlan> ReadQwen3Next(ConfigReader top);
StatusOr<StackPlan> ReadQwen3(ConfigReader top);
StatusOr<StackPlan> ReadQwen2(ConfigReader top);
StatusOr<StackPlan> ReadLlama(ConfigReader top);
StatusOr<StackPlan> ReadMistral(ConfigReader top);

// registry.cc: reads FOLDER/config.json; `text` receives it as stored. Errors: as MakeModel.
StatusOr<StackPlan> ReadStackPlan(const std::string& folder, std::string& text);
// The same from JSON in memory; `path` names it in messages.
StatusOr<StackPlan> ParseStackPlan(const std::string& text, const std::string& path);
// Names registry.cc knows, for messages.
std::vector<std::string> KnownArchitectures();

}  // namespace invar::models
