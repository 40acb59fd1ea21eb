// The eviction orders there are; one file and one line each.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cache/evict/eviction_order.h"

namespace invar::cache {

std::unique_ptr<EvictionOrder> MakeLeastRecentlyUsed();
std::unique_ptr<EvictionOrder> MakeNodeDemand();

// The order of that name. Requires: the name is one of EvictionOrderNames().
std::unique_ptr<EvictionOrder> MakeEvictionOrder(std::string_view name);
// All names.
std::span<const std::string_view> EvictionOrderNames();

}  // namespace invar::cache
