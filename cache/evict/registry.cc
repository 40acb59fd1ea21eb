// Name -> eviction order, one line each.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "cache/evict/orders.h"

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

constexpr auto kNames = [] {
  std::array<std::string_view, kRows.size()> names{};
  std::transform(kRows.begin(), kRows.end(), names.begin(), [](const Row& row) { return row.name; });
  return names;
}();

}  // namespace

std::unique_ptr<EvictionOrder> MakeEvictionOrder(const std::string_view name) {
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == name; });
  Check(row != kRows.end(), "an eviction order has a known name", name);
  return row->make();
}

std::span<const std::string_view> EvictionOrderNames() { return kNames; }

}  // namespace invar::cache
