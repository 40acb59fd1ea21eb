// Name -> policy, one line each.
#include <algorithm>
#include <array>

#include "cache/checkpoint/policies.h"

namespace invar::cache {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<PlacementPolicy> (*make)();
};

constexpr std::array kRows = {
    Row{"optimal-dp", MakeOptimalDpPlacement},
    Row{"none", MakeNoPlacement},
    Row{"kv-only", MakeKvOnlyPlacement},
    Row{"end-only", MakeEndOnlyPlacement},
    Row{"balanced", MakeBalancedPlacement},
    Row{"block", MakeBlockPlacement},
    Row{"logarithmic", MakeLogarithmicPlacement},
    Row{"logarithmic-end", MakeLogarithmicEndPlacement},
    Row{"sqrt", MakeSqrtPlacement},
    Row{"branch-on-demand", MakeBranchOnDemandPlacement},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kRows.size()> names{};
  std::transform(kRows.begin(), kRows.end(), names.begin(), [](const Row& row) { return row.name; });
  return names;
}();

}  // namespace

std::unique_ptr<PlacementPolicy> MakePlacement(const std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.make();
  }
  return nullptr;
}

std::span<const std::string_view> PlacementNames() { return kNames; }

}  // namespace invar::cache
