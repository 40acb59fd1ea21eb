// Scaling formulas: llama3 as published with Llama 3.1 (wavelengths longer than the original context are stretched,
// short ones kept, a linear ramp between), yarn (Peng et al. 2023, equations for the ramp and the attention factor).
#include "models/stack/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace invar::models {
namespace {

// One field that may stand in the section, at the top, or in both: then both must agree.
template <typename T, typename Read>
T FromEither(ConfigReader& top, std::optional<ConfigReader>& section, const std::string& key, const Read& read) {
  const bool in_section = section.has_value() && section->Has(key);
  if (in_section && top.Has(key) && section->Found(key) != top.Found(key)) {
    top.Fail(key, "the same value here and in the rope section (" + section->Found(key) + ")", top.Found(key));
  }
  return in_section ? read(*section) : read(top);
}

std::string ReadType(ConfigReader& section) {
  const std::string type = section.String("rope_type", section.String("type", "default"));
  if (section.Has("type") && section.Found("type") != section.Found("rope_type") && section.Has("rope_type")) {
    section.Fail("type", "the same as rope_type (" + section.Found("rope_type") + ")", section.Found("type"));
  }
  // "mrope" is the older name of multi-axis positions, which are plain positions for text.
  return type == "mrope" ? "default" : type;
}

void ScaleLlama3(ConfigReader& section, RopePlan& plan) {
  const double factor = section.Positive("factor");
  const double low = section.Positive("low_freq_factor");
  const double high = section.Positive("high_freq_factor");
  const double original = section.Int("original_max_position_embeddings");
  if (high <= low) section.Fail("high_freq_factor", "more than low_freq_factor", section.Found("high_freq_factor"));
  for (double& inverse : plan.inverse_frequencies) {
    const double wavelength = 2 * std::numbers::pi / inverse;
    if (wavelength > original / low) {
      inverse /= factor;
    } else if (wavelength >= original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      inverse = (1 - smooth) * inverse / factor + smooth * inverse;
    }
  }
}

// Yarn's attention factor for one of the two mscale settings.
double Mscale(const double factor, const double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void ScaleYarn(ConfigReader& section, const double theta, const int32_t max_positions, RopePlan& plan) {
  const double factor = section.Positive("factor");
  const double original = section.Int("original_max_position_embeddings", 1, max_positions);
  const double fast = section.Positive("beta_fast", 32.0);
  const double slow = section.Positive("beta_slow", 1.0);
  if (fast <= slow) section.Fail("beta_fast", "more than beta_slow", fmt::format("{}", fast));
  const bool truncate = section.Bool("truncate", true);
  const auto pairs = static_cast<double>(plan.inverse_frequencies.size());
  const double dims = 2 * pairs;
  // Dimension whose frequency turns `rotations` times within the original context.
  const auto dimension = [&](const double rotations) {
    return dims * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension(fast);
  double high = dimension(slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  const double width = high == low ? 0.001 : high - low;  // As the original code avoids the singularity.
  for (size_t i = 0; i < plan.inverse_frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    const double inverse = plan.inverse_frequencies[i];
    plan.inverse_frequencies[i] = inverse / factor * ramp + inverse * (1 - ramp);
  }
  double attention = Mscale(factor, 1.0);
  if (section.Has("mscale") && section.Has("mscale_all_dim")) {
    attention = Mscale(factor, section.Positive("mscale")) / Mscale(factor, section.Positive("mscale_all_dim"));
  }
  plan.factor = section.Positive("attention_factor", attention);
  plan.max_positions = std::max(max_positions, static_cast<int32_t>(std::min(original * factor, 2147483647.0)));
}

}  // namespace

RopePlan ReadRope(ConfigReader& config, const int32_t head_dim, const double partial_default) {
  RopePlan plan;
  std::optional<ConfigReader> parameters = config.Section("rope_parameters");
  std::optional<ConfigReader> scaling = config.Section("rope_scaling");
  if (parameters.has_value() && scaling.has_value() && parameters->json() != scaling->json()) {
    // Old files that were saved again may carry both; two different answers are a contradiction.
    if (ReadType(*parameters) != ReadType(*scaling) || parameters->Found("factor") != scaling->Found("factor")) {
      config.Fail("rope_scaling", "the same as rope_parameters", config.Found("rope_scaling"));
    }
  }
  std::optional<ConfigReader>& section = parameters.has_value() ? parameters : scaling;

  const double theta =
      FromEither<double>(config, section, "rope_theta", [](ConfigReader& at) { return at.Positive("rope_theta"); });
  const double partial = FromEither<double>(config, section, "partial_rotary_factor", [&](ConfigReader& at) {
    return at.Positive("partial_rotary_factor", partial_default);
  });
  // Where whole heads turn, the transformers library passes this field over in some types and applies it in others.
  if (partial_default == 1 && partial != 1) {
    config.Fail("partial_rotary_factor", "1, since this family turns whole heads", fmt::format("{}", partial));
  }
  if (theta <= 1) config.Fail("rope_theta", "a number > 1", fmt::format("{}", theta));
  const auto dims = static_cast<int32_t>(head_dim * std::min(partial, 2.0));
  if (partial > 1 || dims < 2 || dims % 2 != 0) {
    config.Fail("partial_rotary_factor",
                fmt::format("a share of head_dim {} that gives an even number of dimensions", head_dim),
                fmt::format("{}", partial));
  }
  plan.max_positions = config.Int("max_position_embeddings");
  for (int32_t i = 0; i < std::min(dims, head_dim) / 2; ++i)
    plan.inverse_frequencies.push_back(std::pow(theta, -2.0 * i / dims));

  if (!section.has_value()) return plan;
  plan.type = ReadType(*section);
  if (plan.type == "linear") {
    const double factor = section->Positive("factor");
    for (double& inverse : plan.inverse_frequencies) inverse /= factor;
  } else if (plan.type == "llama3") {
    ScaleLlama3(*section, plan);
  } else if (plan.type == "yarn") {
    ScaleYarn(*section, theta, plan.max_positions, plan);
  } else if (plan.type == "default") {
    if (section->Positive("factor", 1.0) != 1)
      section->Fail("factor", "1, as rope_type default says", section->Found("factor"));
  } else {
    section->Fail(section->Has("rope_type") ? "rope_type" : "type", "default, linear, llama3 or yarn", plan.type);
  }
  return plan;
}

}  // namespace invar::models
