// The eviction orders there are; one file and one line each.
#pragma once

#include <memory>

#include "cache/evict/eviction_order.h"

namespace invar::cache {

std::unique_ptr<EvictionOrder> MakeLeastRecentlyUsed();

}  // namespace invar::cache
