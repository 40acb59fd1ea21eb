// Units in the order of the work they save for each byte and second they are held: the rate of requests that no deeper
// checkpoint covers, times the tokens to the checkpoint above. Source: as evictor.h; the rate is demand_model.h's.
#include <algorithm>

#include "cache/evict/orders.h"

namespace invar::cache {
namespace {

class NodeDemand final : public EvictionOrder {
 public:
  double Value(const EvictionUnit& unit) const override {
    return unit.demand.per_second * unit.recompute / static_cast<double>(std::max<int64_t>(1, unit.bytes));
  }
};

}  // namespace

std::unique_ptr<EvictionOrder> MakeNodeDemand() { return std::make_unique<NodeDemand>(); }

}  // namespace invar::cache
