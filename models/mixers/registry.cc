// The kinds of mixers: a row each, named as config.json's layer_types names them.
#include "base/check.h"
#include "models/stack/mixer_plan.h"

namespace invar::models {

// Each in the file of its kind.
std::shared_ptr<const MixerPlan> ReadFullAttention(ConfigReader& config);
std::shared_ptr<const MixerPlan> ReadGatedDeltaNet(ConfigReader& config);

namespace {

constexpr MixerKind kKinds[] = {
    {"full_attention", ReadFullAttention},
    {"linear_attention", ReadGatedDeltaNet},
};

}  // namespace

std::vector<std::string> MixerNames() {
  std::vector<std::string> names;
  for (const MixerKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::shared_ptr<const MixerPlan> ReadMixer(const std::string_view name, ConfigReader& config) {
  for (const MixerKind& kind : kKinds) {
    if (kind.name == name) return kind.read(config);
  }
  Check(false, "a mixer kind is one the registry knows", name);
  return nullptr;
}

}  // namespace invar::models
