// What stands behind registry.cc's lines: a file each.
#pragma once

#include <span>

#include "server/metrics/table.h"

namespace invar::server {

MetricsPart InfoMetrics();
MetricsPart CallMetrics();
MetricsPart PortMetrics();
MetricsPart RequestMetrics();
MetricsPart SampleMetrics();
MetricsPart MemoryMetrics();
MetricsPart CacheMetrics();
MetricsPart TierMetrics();
MetricsPart TransferMetrics();
MetricsPart SpeculationMetrics();
MetricsPart SlowTierMetrics();
MetricsPart ViewMetrics();
MetricsPart ProcessMetrics();

// All RPCs, in the order of Rpc.
Axis RpcAxis();

// Upper bounds of the histogram of `sample` (samples.cc).
std::span<const double> BoundsOf(Sample sample);

// All of them.
const std::vector<MetricsPart>& MetricsParts();

}  // namespace invar::server
