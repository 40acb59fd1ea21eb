// From a model folder to a Model: one line per model_type.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "models/layer_stack.h"
#include "models/model.h"
#include "models/stack_plan.h"
#include "models/text/strict_json.h"

namespace invar::models {
namespace {

struct Family {
  const char* model_type;
  StatusOr<StackPlan> (*read)(ConfigReader top);
};

constexpr Family kFamilies[] = {
    {"qwen3_5", ReadQwen35},        {"qwen3_5_text", ReadQwen35},
    {"qwen3_5_moe", ReadQwen35Moe}, {"qwen3_5_moe_text", ReadQwen35Moe},
    {"qwen3_next", ReadQwen3Next},  {"qwen3", ReadQwen3},
    {"qwen2", ReadQwen2},           {"llama", ReadLlama},
    {"mistral", ReadMistral},
};

constexpr int64_t kConfigBytesMax = 4 << 20;

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
    if (type == family.model_type) return family.read(top);
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
