// Arrival: what a load from the cache's tiers came to.
#pragma once

#include <cstdint>
#include <string_view>

namespace invar::cache {

// What a tier brought for the caller of Prefetch with this ticket: `tier` is empty where that was nothing.
struct Arrival {
  int64_t ticket = 0;
  std::string_view tier;
};

}  // namespace invar::cache
