// What a load test measured, request by request, and its summary: percentiles, throughput, reuse.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/serve/workload.h"

namespace invar::bench {

// Times in seconds after the start of the measured part.
struct RequestRecord {
  double intended_s = 0.0;     // When it should have been sent; latency counts from here.
  double first_token_s = 0.0;  // When the first token came.
  double end_s = 0.0;          // When the last token came.
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
  std::string error;  // Name of the gRPC code; empty: succeeded.
};

struct Percentiles {
  double p50 = 0.0;
  double p95 = 0.0;
  double p99 = 0.0;
};

struct Report {
  int64_t requests = 0;
  int64_t failed = 0;
  std::map<std::string, int64_t> errors;  // Failed requests by gRPC code.
  double duration_s = 0.0;
  double requests_per_s = 0.0;
  double tokens_per_s = 0.0;  // Output tokens of requests that succeeded.
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  Percentiles first_token_s;  // From the intended time.
  Percentiles per_token_s;    // (last token - first token) / (tokens - 1), of requests with two tokens or more.
  Percentiles end_to_end_s;
  double cached_token_share = 0.0;  // Of the prompt tokens of requests that succeeded.
};

// Nearest rank: the smallest value that at least that share of the values does not exceed; zeros where there is none.
Percentiles PercentilesOf(std::vector<double> values);

Report Summarize(const std::vector<RequestRecord>& records, double duration_s);

std::string ToJson(const Workload& workload, const Report& report);
std::string ToText(const Workload& workload, const Report& report);

}  // namespace invar::bench
