// The parts that have metrics, in the order of the page and of docs/METRICS.md: a name each.
#include "server/metrics/parts.h"

namespace invar::server {

const std::vector<MetricsPart>& MetricsParts() {
  static const std::vector<MetricsPart> parts = {
      InfoMetrics(),     CallMetrics(),  PortMetrics(),    RequestMetrics(),  SampleMetrics(),
      MemoryMetrics(),   CacheMetrics(), TierMetrics(),    TransferMetrics(), SpeculationMetrics(),
      SlowTierMetrics(), ViewMetrics(),  ProcessMetrics(),
  };
  return parts;
}

}  // namespace invar::server
