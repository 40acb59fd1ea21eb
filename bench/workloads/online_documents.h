// An online experiment: independent documents arrive one after another, each is come back to a few times, and a policy
// with M checkpoints a document decides where they lie, knowing only the past. Tells what learning from other documents
// of the class is worth against what servers without it do.
// Threads: any; pure in its arguments.
#pragma once

#include <cstdint>
#include <string_view>

#include "bench/workloads/depths.h"
#include "cache/checkpoint/class_prior.h"

namespace invar::bench {

enum class OnlinePolicy {
  kBalanced,        // Even spacing.
  kEndOnly,         // One at the document's last block end.
  kBranchOnDemand,  // One at the block end before wherever a request stopped matching, the least recently used of M
                    // leaving: other servers.
  kLearned,         // The planner, placing once, when the document first arrives.
  kHindsight,       // The optimum for the document's own later requests: a bound.
};

struct OnlineOptions {
  int32_t documents = 400;
  int32_t requests = 12;      // Later ones a document.
  int32_t length_min = 4096;  // Lengths are uniform between the two.
  int32_t length_max = 8192;
  int32_t places = 4;  // M.
  uint64_t seed = 1;
};

struct OnlineResult {
  double recomputed_tokens = 0;                  // Mean over all later requests.
  cache::Anchor anchor = cache::Anchor::kStart;  // kLearned: the histogram it ended up with.
};

OnlineResult RunOnline(const DepthWorkload& workload, OnlinePolicy policy, const OnlineOptions& options);

}  // namespace invar::bench
