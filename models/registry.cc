// From a model folder to a Model: one line per model_type.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "models/model.h"
#include "models/stack/layer_stack.h"
#include "models/stack/stack_plan.h"
#include "models/text/strict_json.h"

namespace invar::models {
namespace {

struct Family {
  const char* model_type;
  StatusOr<StackPlan> (*read)(ConfigReader top);
  const char* class_stem;  // Of the names that `architectures` may hold.
};

constexpr Family kFamilies[] = {
    {"qwen3_5", ReadQwen35, "Qwen3_5"},
    {"qwen3_5_text", ReadQwen35, "Qwen3_5"},
    {"qwen3_5_moe", ReadQwen35Moe, "Qwen3_5Moe"},
    {"qwen3_5_moe_text", ReadQwen35Moe, "Qwen3_5Moe"},
    {"qwen3_next", ReadQwen3Next, "Qwen3Next"},
    {"qwen3", ReadQwen3, "Qwen3"},
    {"qwen2", ReadQwen2, "Qwen2"},
    {"llama", ReadLlama, "Llama"},
    {"mistral", ReadMistral, "Mistral"},
};

constexpr int64_t kConfigBytesMax = 4 << 20;

// A model of the same layers may end in something else than a head over the vocabulary: a classifier, a reward.
void CheckClasses(ConfigReader& top, const Family& family) {
  const std::string causal = std::string(family.class_stem) + "ForCausalLM";
  const std::string wrapped = std::string(family.class_stem) + "ForConditionalGeneration";
  for (const std::string& name : top.Strings("architectures")) {
    if (name == causal || name == wrapped) continue;
    top.Fail("architectures", fmt::format("{} or {}, as model_type says", causal, wrapped), "\"" + name + "\"");
  }
}

}  // namespace

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  return names;
}

StatusOr<StackPlan> ParseStackPlan(const std::string& text, const std::string& path) {
  StatusOr<nlohmann::json> json = ParseStrictJson(text, path);
  if (!json.ok()) return json.status();
  if (!json->is_object()) return InvalidArgument(path + ": wanted a JSON object, found " + json->type_name());
  ConfigReader top(*json, path);
  const std::string type = top.String("model_type");
  if (!top.status().ok()) return top.status();
  for (const Family& family : kFamilies) {
    if (type != family.model_type) continue;
    CheckClasses(top, family);
    if (!top.status().ok()) return top.status();
    return family.read(top);
  }
  return InvalidArgument(
      fmt::format("{}: model_type: wanted one of {}, found \"{}\"", path, fmt::join(KnownArchitectures(), ", "), type),
      "model_type");
}

StatusOr<StackPlan> ReadStackPlan(const std::string& folder, std::string& text) {
  const std::string path = folder + "/config.json";
  StatusOr<std::string> read = ReadFile(path, kConfigBytesMax);
  if (!read.ok()) return read.status();
  text = *std::move(read);
  return ParseStackPlan(text, path);
}

StatusOr<std::unique_ptr<Model>> MakeModel(const ModelOptions& options, kernels::Backend& backend) {
  std::string config_text;
  StatusOr<StackPlan> plan = ReadStackPlan(options.folder, config_text);
  if (!plan.ok()) return plan.status();
  return MakeLayerStack(*plan, config_text, options, backend);
}

}  // namespace invar::models
