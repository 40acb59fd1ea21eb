// Inverse transforms and Box-Muller on a small generator, instead of <random>, whose distributions differ between
// libraries.
#include "bench/workloads/depths.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace invar::bench {
namespace {

// In (0, 1], so that its logarithm is finite.
double Uniform(SplitMix64& random) { return static_cast<double>((random.Next() >> 11) + 1) * 0x1p-53; }

double Normal(SplitMix64& random) {
  const double radius = std::sqrt(-2.0 * std::log(Uniform(random)));
  return radius * std::cos(2.0 * std::numbers::pi * Uniform(random));
}

double Exponential(SplitMix64& random, const double mean) { return -mean * std::log(Uniform(random)); }

int32_t Clip(const double depth, const int32_t length) {
  return static_cast<int32_t>(std::clamp(std::round(depth), 1.0, static_cast<double>(length)));
}

// Multiple-choice questions behind one long text: nearly all of it is shared.
int32_t Quality(SplitMix64& random, const int32_t length) {
  const double kind = Uniform(random);
  if (kind <= 0.85) return Clip(length - std::floor(Exponential(random, 64.0)), length);
  if (kind <= 0.95) return Clip(length * (0.8 + 0.2 * Uniform(random)), length);
  return Clip(length * Uniform(random), length);
}

// Questions after a chapter: five places, each with its own spread.
int32_t Narrative(SplitMix64& random, const int32_t length) {
  struct Chapter {
    double up_to;  // Running share of the requests.
    double mean, deviation;
  };
  constexpr std::array kChapters = {
      Chapter{.up_to = 0.15, .mean = 0.12, .deviation = 0.02}, Chapter{.up_to = 0.35, .mean = 0.30, .deviation = 0.03},
      Chapter{.up_to = 0.55, .mean = 0.48, .deviation = 0.04}, Chapter{.up_to = 0.80, .mean = 0.70, .deviation = 0.05},
      Chapter{.up_to = 0.90, .mean = 0.93, .deviation = 0.03}};
  const double kind = Uniform(random);
  for (const Chapter& chapter : kChapters) {
    if (kind <= chapter.up_to) return Clip(length * (chapter.mean + chapter.deviation * Normal(random)), length);
  }
  return Clip(length * Uniform(random), length);
}

// Five known prompts to the token, many others of a few hundred tokens, and a long tail.
int32_t SystemPrompts(SplitMix64& random, const int32_t length) {
  constexpr std::array kPrompts = {187, 352, 611, 1024, 1899};
  const double kind = Uniform(random);
  if (kind <= 0.2) return Clip(kPrompts[random.Next() % kPrompts.size()], length);
  if (kind <= 0.9) return Clip(400.0 * std::exp(0.6 * Normal(random)), length);
  return Clip(800.0 * std::pow(Uniform(random), -1.0 / 1.1), length);
}

// One shared length that is never quite the same, 5,000 +- 150 of 8,192: checkpoints at the last match never line up.
int32_t Fluctuating(SplitMix64& random, const int32_t length) {
  return Clip(length * (5000.0 / 8192.0) + 150.0 * Normal(random), length);
}

constexpr std::array kWorkloads = {
    DepthWorkload{"quality", "questions behind one long text (QuALITY-like)", Quality},
    DepthWorkload{"narrative", "questions after chapters (NarrativeQA-like)", Narrative},
    DepthWorkload{"system-prompts", "known prompts, many short ones, a long tail", SystemPrompts},
    DepthWorkload{"fluctuating", "one shared length that is never quite the same", Fluctuating},
};

}  // namespace

std::span<const DepthWorkload> DepthWorkloads() { return kWorkloads; }

std::vector<std::string> DepthWorkloadNames() {
  std::vector<std::string> names;
  for (const DepthWorkload& workload : DepthWorkloads()) names.emplace_back(workload.name);
  return names;
}

const DepthWorkload* FindDepthWorkload(const std::string_view name) {
  for (const DepthWorkload& workload : kWorkloads) {
    if (workload.name == name) return &workload;
  }
  return nullptr;
}

std::vector<int32_t> DrawDepths(const DepthWorkload& workload, const int32_t length, const int32_t count,
                                const uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<int32_t> depths(count);
  for (int32_t& depth : depths) depth = workload.draw(random, length);
  return depths;
}

}  // namespace invar::bench
