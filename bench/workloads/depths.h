// Made-up workloads for prefix caching: how deep later requests match a prefix of a given length. The shapes are those
// of the sparse prefix caching paper's data (arXiv 2605.05219), as distributions: long texts with questions behind
// them, texts that are left at chapter ends, system prompts, and a shared length that fluctuates. A generator is one
// function and one row of the table in depths.cc. Same seed, same depths. Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/split_mix64.h"

namespace invar::bench {

struct DepthWorkload {
  std::string_view name;
  std::string_view summary;
  // One overlap depth in 1..length. Requires: length >= 1.
  int32_t (*draw)(SplitMix64& random, int32_t length);
};

std::span<const DepthWorkload> DepthWorkloads();
std::vector<std::string> DepthWorkloadNames();
// nullptr where there is none of that name.
const DepthWorkload* FindDepthWorkload(std::string_view name);

std::vector<int32_t> DrawDepths(const DepthWorkload& workload, int32_t length, int32_t count, uint64_t seed);

}  // namespace invar::bench
