// Name -> policy, one line each.
#include <array>

#include "base/names_of.h"
#include "cache/checkpoint/policies.h"
#include "config/cache_names.h"

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

constexpr auto kNames = NamesOf(kRows);
static_assert(kNames == kPlacementNames, "the configuration offers these names");

}  // namespace

std::unique_ptr<PlacementPolicy> MakePlacement(const std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.make();
  }
  return nullptr;
}

std::span<const std::string_view> PlacementNames() { return kNames; }

}  // namespace invar::cache
