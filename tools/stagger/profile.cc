// One table of keys reads, checks and names them.
#include "tools/stagger/profile.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

namespace invar::tools {
namespace {

// Shares of a data sheet's numbers that real kernels reach, the fixed cost of a step, and what is left of the fast
// tier.
constexpr double kHbmEfficiency = 0.8;
constexpr double kFlopsEfficiency = 0.5;
constexpr double kStepOverheadS = 0.5e-3;
constexpr double kHbmUsableShare = 0.92;
constexpr double kActivationBytes = 2e9;

struct Key {
  const char* name;
  double StaggerProfile::*field;
  double min;
  double max;
  bool required;
};

constexpr Key kKeys[] = {
    {"hbm_gb", &StaggerProfile::hbm_gb, 0.001, 1e6, true},
    {"hbm_tbps", &StaggerProfile::hbm_tbps, 1e-6, 1e4, true},
    {"link_gbps", &StaggerProfile::link_gbps, 1e-6, 1e6, true},
    {"tflops", &StaggerProfile::tflops, 1e-6, 1e6, true},
    {"weights_gb", &StaggerProfile::weights_gb, 0.0001, 1e6, true},
    {"kv_bytes_per_token", &StaggerProfile::kv_bytes_per_token, 1, 1e9, true},
    {"state_bytes", &StaggerProfile::state_bytes, 0, 1e12, false},
    {"context_tokens", &StaggerProfile::context_tokens, 1, 1e9, true},
    {"compression", &StaggerProfile::compression, 1, 1e4, true},
    {"acceptance", &StaggerProfile::acceptance, 0, 1, true},
    {"prefix_group", &StaggerProfile::prefix_group, 1, 1e4, false},
    {"wire_factor", &StaggerProfile::wire_factor, 1, 100, false},
    {"gap_s_max", &StaggerProfile::gap_s_max, 0, 1e6, false},
};

std::string KeyNames() {
  std::string names;
  for (const Key& key : kKeys) names += (names.empty() ? "" : ", ") + std::string(key.name);
  return names;
}

Status ReadKey(const std::string& path, const std::string& name, const YAML::Node& value, StaggerProfile& profile) {
  const auto* const key =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return name == k.name; });
  const auto where = fmt::format("{}:{}: {}", path, value.Mark().line + 1, name);
  if (key == std::end(kKeys)) return InvalidArgument(fmt::format("{}: unknown key; known: {}", where, KeyNames()));
  double number = NAN;
  if (!value.IsScalar() || !YAML::convert<double>::decode(value, number) || !(number >= key->min) ||
      number > key->max) {
    return InvalidArgument(fmt::format("{}: wanted a number from {} to {}, found {}", where, key->min, key->max,
                                       value.IsScalar() ? value.Scalar() : "no single value"));
  }
  profile.*key->field = number;
  return OkStatus();
}

}  // namespace

StatusOr<StaggerProfile> LoadStaggerProfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound(fmt::format("cannot read {}", path));
  std::stringstream text;
  text << file.rdbuf();
  YAML::Node root;
  try {
    root = YAML::Load(text.str());
  } catch (const YAML::Exception& error) {
    return InvalidArgument(fmt::format("{}:{}: {}", path, error.mark.line + 1, error.msg));
  }
  if (!root.IsMap()) return InvalidArgument(fmt::format("{}: wanted keys and values: {}", path, KeyNames()));
  StaggerProfile profile;
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (!seen.insert(name).second) {
      return InvalidArgument(fmt::format("{}:{}: {}: given twice", path, entry.first.Mark().line + 1, name));
    }
    if (Status s = ReadKey(path, name, entry.second, profile); !s.ok()) return s;
  }
  for (const Key& key : kKeys) {
    if (key.required && seen.count(key.name) == 0) {
      return InvalidArgument(
          fmt::format("{}: {}: missing; wanted a number from {} to {}", path, key.name, key.min, key.max));
    }
  }
  if (profile.device().kv_room_bytes <= 0) {
    return InvalidArgument(fmt::format("{}: weights_gb: {} leave no room for KV in hbm_gb {}: at most {:.1f}", path,
                                       profile.weights_gb, profile.hbm_gb,
                                       std::max(0.0, profile.hbm_gb * kHbmUsableShare - kActivationBytes / 1e9)));
  }
  return profile;
}

engine::TwoTierDevice StaggerProfile::device() const {
  return {.fast_bytes_per_s = hbm_tbps * 1e12 * kHbmEfficiency,
          .link_bytes_per_s = link_gbps * 1e9,
          .flops_per_s = tflops * 1e12 * kFlopsEfficiency,
          .step_overhead_s = kStepOverheadS,
          .kv_room_bytes = hbm_gb * 1e9 * kHbmUsableShare - weights_gb * 1e9 - kActivationBytes};
}

// Two bytes a weight, two operations a weight and token.
engine::SpeculationLoad StaggerProfile::load() const {
  return {.weight_bytes = weights_gb * 1e9,
          .flops_per_token = weights_gb * 1e9,
          .full_kv_bytes = kv_bytes_per_token * context_tokens,
          .state_bytes = state_bytes,
          .compression = compression,
          .acceptance = acceptance,
          .prefix_group = prefix_group,
          .wire_factor = wire_factor};
}

}  // namespace invar::tools
