// Wire and cache reports: the messages of AdminService. Pure functions; threads: any.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "cache/flush.h"
#include "cache/plan_report.h"
#include "engine/engine.h"
#include "invar/v1/admin.pb.h"

namespace invar::server {

// Nodes in a snapshot of the cache, and so the most in an answer: about 100 KB.
inline constexpr int32_t kSnapshotNodesMax = 1024;

// Nodes of a GetCacheStatistics answer. Errors: INVALID_ARGUMENT.
StatusOr<int32_t> TranslateNodesMax(const v1::GetCacheStatisticsRequest& proto);

// Of `tenant`, or (none) of all. Nothing of other tenants is in the answer.
void FillStatistics(const engine::CacheSnapshot& snapshot, const std::optional<std::string>& tenant, int32_t nodes_max,
                    v1::GetCacheStatisticsResponse& response);

// `tenant`: as TenantsFor gave it; `several`: whether there are tenants at all. Errors: INVALID_ARGUMENT.
StatusOr<cache::FlushOptions> TranslateFlush(const v1::FlushCacheRequest& proto, std::optional<std::string> tenant,
                                             bool several);

// The Generate request with the same prompt.
v1::GenerateRequest AsGenerate(const v1::ExplainPlanRequest& proto);

void FillPlan(const cache::PlanReport& plan, int32_t prompt_tokens, v1::ExplainPlanResponse& response);

}  // namespace invar::server
