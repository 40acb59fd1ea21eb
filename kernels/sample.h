// RowSampler: choosing a token from one row of logits, by pure functions of (logits, settings, seed, output index,
// position). Order of filters: temperature, then top-k, then top-p, then min-p; then the largest logit / temperature +
// Gumbel noise among the kept wins (the same distribution as drawing from the softmax of the kept). Ties go to the
// smallest id. NaN and -infinity are never chosen.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/noise.h"
#include "base/status.h"

namespace invar::kernels {

namespace cpu {
struct KernelTable;
}  // namespace cpu

using invar::NoiseKey;

// Below this temperature the largest logit is chosen, as at 0. One step of a float near 16 is 2e-6, at this temperature
// already 0.2 in the exponent: what is left to draw from is rounding.
inline constexpr float kGreedyBelow = 1e-5F;

struct SampleSettings {
  float temperature = 1.0F;  // Below kGreedyBelow: the largest logit.
  int32_t top_k = 0;         // Keep the k largest; <= 0: all.
  float top_p = 1.0F;        // Keep the fewest, largest first, whose probabilities sum to at least this; >= 1: all.
  float min_p = 0.0F;        // Keep those at least this share as probable as the most probable; <= 0: all.
};

// Chooses by the loops of one instruction set; what is chosen does not depend on which. Threads: any.
class RowSampler {
 public:
  // `isa`: a name of config/isa_names.h; empty: the best. Errors: INVALID_ARGUMENT (unknown), FAILED_PRECONDITION (this
  // machine lacks it).
  static StatusOr<RowSampler> Create(std::string_view isa);
  explicit RowSampler(const cpu::KernelTable& table) : table_(&table) {}  // For tests.

  std::string_view isa() const;

  // Returns the id, or -1 where no logit can be chosen.
  int32_t Sample(std::span<const float> logits, const SampleSettings& settings, const NoiseKey& key) const;
  // Id of the largest logit, ties to the smallest id; -1 where there is none.
  int32_t ArgMax(std::span<const float> logits) const;
  // log(sum exp(logits)): a token's log-probability is its logit minus this. -infinity where no logit can be chosen.
  float LogSumExp(std::span<const float> logits) const;
  // The k most probable ids, best first, ties by id; fewer where fewer can be chosen.
  void Top(std::span<const float> logits, int32_t k, std::vector<int32_t>* ids) const;

 private:
  const cpu::KernelTable* table_;
};

}  // namespace invar::kernels
