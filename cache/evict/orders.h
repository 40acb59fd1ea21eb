// The eviction orders there are; one file and one line each.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "cache/evict/eviction_order.h"

namespace invar::cache {

std::unique_ptr<EvictionOrder> MakeLeastRecentlyUsed();
std::unique_ptr<EvictionOrder> MakeNodeDemand();

// Not an order: both of them in a duel (duel.h), and the better one followed.
inline constexpr std::string_view kDuelName = "duel";
inline constexpr std::array<std::string_view, 2> kDuelOrders = {"node-demand", "least-recently-used"};

// The order of that name. Requires: the name is one of EvictionOrderNames().
std::unique_ptr<EvictionOrder> MakeEvictionOrder(std::string_view name);
// All names.
std::span<const std::string_view> EvictionOrderNames();

}  // namespace invar::cache
