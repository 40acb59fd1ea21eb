// See metrics.h: what events add up to.
#include "server/metrics/metrics.h"

#include <algorithm>
#include <utility>

#include "server/metrics/parts.h"

namespace invar::server {

Metrics::Metrics(const bool vllm_aliases) : vllm_aliases_(vllm_aliases) {
  for (size_t i = 0; i < kSampleCount; ++i) {
    const std::span<const double> bounds = BoundsOf(static_cast<Sample>(i));
    histograms_[i] =
        std::make_unique<prometheus::Histogram>(prometheus::Histogram::BucketBoundaries(bounds.begin(), bounds.end()));
  }
}

void Metrics::Observe(const Sample sample, const double value) {
  histograms_[static_cast<size_t>(sample)]->Observe(std::max(value, 0.0));
}

void Metrics::CountCall(const Rpc rpc, const StatusCode code) {
  ++calls_[static_cast<size_t>(rpc)][static_cast<size_t>(code)];
}

void Metrics::CountRefusal(const Refusal refusal) { ++refusals_[static_cast<size_t>(refusal)]; }

std::string Metrics::Text(MetricsSnapshot snapshot) const {
  for (size_t rpc = 0; rpc < kRpcCount; ++rpc) std::ranges::copy(calls_[rpc], snapshot.events.calls[rpc].begin());
  std::ranges::copy(refusals_, snapshot.events.refusals.begin());
  for (size_t i = 0; i < kSampleCount; ++i) snapshot.events.samples[i] = histograms_[i]->Collect();
  return MetricsPage(snapshot, vllm_aliases_);
}

}  // namespace invar::server
