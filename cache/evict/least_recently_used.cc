// Units in the order of their last use.
#include "cache/evict/orders.h"

namespace invar::cache {
namespace {

class LeastRecentlyUsed final : public EvictionOrder {
 public:
  double Value(const EvictionUnit& unit) const override { return static_cast<double>(unit.used_at); }
};

}  // namespace

std::unique_ptr<EvictionOrder> MakeLeastRecentlyUsed() { return std::make_unique<LeastRecentlyUsed>(); }

}  // namespace invar::cache
