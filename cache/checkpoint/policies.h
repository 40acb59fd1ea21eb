// Every kind of placement that registry.cc names. Definitions of the fixed ones stand in baselines.cc.
#pragma once

#include <memory>

#include "cache/checkpoint/placement.h"

namespace invar::cache {

std::unique_ptr<PlacementPolicy> MakeOptimalDpPlacement();
std::unique_ptr<PlacementPolicy> MakeNoPlacement();
std::unique_ptr<PlacementPolicy> MakeKvOnlyPlacement();
std::unique_ptr<PlacementPolicy> MakeEndOnlyPlacement();
std::unique_ptr<PlacementPolicy> MakeBalancedPlacement();
std::unique_ptr<PlacementPolicy> MakeBlockPlacement();
std::unique_ptr<PlacementPolicy> MakeLogarithmicPlacement();
std::unique_ptr<PlacementPolicy> MakeLogarithmicEndPlacement();
std::unique_ptr<PlacementPolicy> MakeSqrtPlacement();
std::unique_ptr<PlacementPolicy> MakeBranchOnDemandPlacement();

}  // namespace invar::cache
