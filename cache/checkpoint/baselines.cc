// Placements that learn nothing: fixed formulas of length N and places M, and the behaviours of other servers. Kept
// selectable, so that what the optimal placement gains can be measured in the same code.
// Formulas: sparse prefix caching, arXiv 2605.05219 (balanced, block, logarithmic, sqrt).
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cache/checkpoint/policies.h"

namespace invar::cache {
namespace {

using Positions = std::vector<int32_t>;

class FixedPlacement final : public PlacementPolicy {
 public:
  using Formula = Positions (*)(int64_t length, int64_t places);
  FixedPlacement(const PlacementTraits traits, const Formula formula) : traits_(traits), formula_(formula) {}

  PlacementTraits traits() const override { return traits_; }

  // Short prefixes make neighbours meet and first positions fall to 0, where state is free: both are left out.
  Positions Place(const PlacementProblem& problem) const override {
    Check(problem.length >= 1 && problem.places >= 0, "a problem has a length and places", problem.length,
          problem.places);
    Positions positions = formula_(problem.length, problem.places);
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    std::erase_if(positions, [&](const int32_t position) {
      return position < 1 || std::binary_search(problem.fixed.begin(), problem.fixed.end(), position);
    });
    return positions;
  }

 private:
  const PlacementTraits traits_;
  const Formula formula_;
};

Positions Nothing(int64_t, int64_t) { return {}; }

Positions TheEnd(const int64_t length, int64_t) { return {static_cast<int32_t>(length)}; }

// The first `places` of At(1), At(2), ...; more places than positions add nothing, so no more than `length` are asked
// for.
template <typename At>
Positions FirstOf(const int64_t length, const int64_t places, const At& at) {
  Positions positions;
  for (int64_t i = 1; i <= std::min(places, length); ++i) positions.push_back(static_cast<int32_t>(at(i)));
  return positions;
}

Positions Balanced(const int64_t length, const int64_t places) {
  return FirstOf(length, places, [&](const int64_t i) { return i * length / (std::min(places, length) + 1); });
}

Positions Block(const int64_t length, const int64_t places) {
  return FirstOf(length, places, [&](const int64_t i) { return i * length / std::min(places, length); });
}

Positions Logarithmic(const int64_t length, const int64_t places) {
  return FirstOf(length, std::min<int64_t>(places, 32), [&](const int64_t i) { return length >> (i - 1); });
}

Positions LogarithmicEnd(const int64_t length, const int64_t places) {
  return FirstOf(length, std::min<int64_t>(places, 32), [&](const int64_t i) { return length - (length >> i); });
}

// As many as the length asks for, whatever the budget: the paper's comparison with one checkpoint every sqrt(N) tokens.
Positions Sqrt(const int64_t length, int64_t) {
  int64_t step = static_cast<int64_t>(std::sqrt(static_cast<double>(length)));
  while (step * step > length) --step;
  return FirstOf(length, length / step, [&](const int64_t i) { return i * step; });
}

std::unique_ptr<PlacementPolicy> Fixed(const PlacementTraits traits, const FixedPlacement::Formula formula) {
  return std::make_unique<FixedPlacement>(traits, formula);
}

// A formula's checkpoints come beside the one at the end, without which no chat would ever resume.
constexpr PlacementTraits kFormula = {.keeps_kv = true, .at_end = true};

}  // namespace

std::unique_ptr<PlacementPolicy> MakeNoPlacement() { return Fixed({}, Nothing); }
std::unique_ptr<PlacementPolicy> MakeKvOnlyPlacement() { return Fixed({.keeps_kv = true}, Nothing); }
std::unique_ptr<PlacementPolicy> MakeEndOnlyPlacement() { return Fixed(kFormula, TheEnd); }
std::unique_ptr<PlacementPolicy> MakeBalancedPlacement() { return Fixed(kFormula, Balanced); }
std::unique_ptr<PlacementPolicy> MakeBlockPlacement() { return Fixed(kFormula, Block); }
std::unique_ptr<PlacementPolicy> MakeLogarithmicPlacement() { return Fixed(kFormula, Logarithmic); }
std::unique_ptr<PlacementPolicy> MakeLogarithmicEndPlacement() { return Fixed(kFormula, LogarithmicEnd); }
std::unique_ptr<PlacementPolicy> MakeSqrtPlacement() { return Fixed(kFormula, Sqrt); }
// What other servers do: nothing is placed ahead, the second request finds where a branch is and the third gains.
std::unique_ptr<PlacementPolicy> MakeBranchOnDemandPlacement() {
  return Fixed({.keeps_kv = true, .at_end = true, .at_branch = true}, TheEnd);
}

}  // namespace invar::cache
