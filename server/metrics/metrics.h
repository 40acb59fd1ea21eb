// The metrics of the daemon. Names, types, units and help stand in the tables of metrics/, a file a part;
// docs/METRICS.md is made from them. Two kinds: numbers read from snapshots at scrape time, and histograms and counters
// fed by events, which are counted here.
// Labels are few enums, never tenants or request ids, so that the number of series is constant.
// Threads: any.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/histogram.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/stats.h"
#include "models/model.h"
#include "server/access/open_calls.h"
#include "server/access/rpc.h"
#include "server/metrics/transfer_counts.h"

namespace invar::server {

inline constexpr size_t kCodeCount = 17;

enum class Sample {
  kFirstToken,       // Seconds from the call's arrival to its first token.
  kInterToken,       // Seconds between two tokens of one request.
  kTimePerToken,     // Seconds of decode a token, one observation a finished request.
  kRequest,          // Seconds from arrival to the end of a finished request.
  kQueue,            // Seconds until admission.
  kPrefill,          // Seconds from admission to the first token.
  kDecode,           // Seconds from the first token to the end.
  kPromptTokens,     // Of finished requests.
  kGeneratedTokens,  // Of finished requests.
};
inline constexpr size_t kSampleCount = 9;

enum class Refusal { kTotal, kPerAddress, kFiles, kAbuse };
inline constexpr size_t kRefusalCount = 4;

// Calls that wait for a thread that prepares them, and those that were refused for how many wait, ever.
struct PreparingReport {
  int64_t waiting = 0;
  int64_t refusals = 0;
  int64_t share_refusals = 0;  // Their tenant had its share.
};

// What events have added up to.
struct MetricEvents {
  std::array<std::array<int64_t, kCodeCount>, kRpcCount> calls{};  // That ended, by rpc and code.
  std::array<int64_t, kRefusalCount> refusals{};
  std::array<prometheus::ClientMetric, kSampleCount> samples{};
};

// What a scrape reads.
struct MetricsSnapshot {
  std::string model;  // Empty while loading.
  std::optional<models::ModelSpec> spec;
  engine::EngineStats engine;
  bool serving = false;
  bool draining = false;
  int64_t connections_open = 0;
  OpenCalls::Report calls;
  PreparingReport preparing;
  TransferCounts transfer;  // Of prefixes that others asked for,
  VerifyCounts verify;      // of requests that were run for them meanwhile,
  TransferAborts aborts;    // and of prefixes that were asked of others.
  int64_t kernel_scratch_bytes = 0;
  MetricEvents events;  // Metrics fills it in.
};

class Metrics {
 public:
  explicit Metrics(bool vllm_aliases);

  void Observe(Sample sample, double value);
  void CountCall(Rpc rpc, StatusCode code);
  void CountRefusal(Refusal refusal);
  int64_t refusals(const Refusal refusal) const { return refusals_[static_cast<size_t>(refusal)]; }

  // The exposition text of Prometheus.
  std::string Text(MetricsSnapshot snapshot) const;

 private:
  const bool vllm_aliases_;
  std::array<std::unique_ptr<prometheus::Histogram>, kSampleCount> histograms_;
  std::array<std::array<std::atomic<int64_t>, kCodeCount>, kRpcCount> calls_{};
  std::array<std::atomic<int64_t>, kRefusalCount> refusals_{};
};

// The page for `snapshot`, with its events.
std::string MetricsPage(const MetricsSnapshot& snapshot, bool vllm_aliases);
// docs/METRICS.md.
std::string PrintMetricsDocs();

}  // namespace invar::server
