// Name -> eviction order, one line each.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/names_of.h"
#include "cache/evict/orders.h"
#include "config/cache_names.h"

namespace invar::cache {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<EvictionOrder> (*make)();
};

constexpr std::array kRows = {
    Row{"least-recently-used", MakeLeastRecentlyUsed},
    Row{"node-demand", MakeNodeDemand},
};

constexpr auto kNames = NamesOf(kRows);
static_assert(kEvictionNames.front() == kDuelName &&
                  std::equal(kEvictionNames.begin() + 1, kEvictionNames.end(), kNames.begin(), kNames.end()),
              "the configuration offers these names");

}  // namespace

std::unique_ptr<EvictionOrder> MakeEvictionOrder(const std::string_view name) {
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == name; });
  Check(row != kRows.end(), "an eviction order has a known name", name);
  return row->make();
}

std::span<const std::string_view> EvictionOrderNames() { return kNames; }

}  // namespace invar::cache
