// See translate_admin.h.
#include "server/wire/translate_admin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace invar::server {
namespace {

double Rate(const int64_t part, const int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// Kinds of checkpoints, bases and verdicts stand in the order of the cache's own, after the unspecified one.
v1::CheckpointKind ToProto(const cache::CheckpointKind kind) {
  return static_cast<v1::CheckpointKind>(static_cast<int>(kind) + 1);
}
static_assert(static_cast<int>(cache::CheckpointKind::kPromptEnd) + 1 == v1::CHECKPOINT_KIND_PROMPT_END);
static_assert(static_cast<int>(cache::CheckpointKind::kBrought) + 1 == v1::CHECKPOINT_KIND_BROUGHT);
static_assert(static_cast<int>(cache::PlanBasis::kNoState) + 1 == v1::ExplainPlanResponse::NO_STATE);
static_assert(static_cast<int>(cache::PlanBasis::kLearned) + 1 == v1::ExplainPlanResponse::LEARNED);
using Decision = v1::ExplainPlanResponse::Decision;
static_assert(static_cast<int>(cache::PlaceVerdict::kPlaced) + 1 == Decision::PLACED);
static_assert(static_cast<int>(cache::PlaceVerdict::kUnused) + 1 == Decision::UNUSED);

void FillTier(const cache::TierReport& tier, v1::TierStatistics& proto) {
  proto.set_name(std::string(tier.name));
  const cache::TierStats& stats = tier.stats;
  proto.set_records(stats.records);
  proto.set_bytes(stats.bytes);
  proto.set_hits(stats.hits);
  proto.set_misses(stats.all_get_misses());
  proto.set_stored(stats.stored);
  proto.set_store_failures(stats.all_put_misses());
  proto.set_read_bytes(stats.bytes_read);
  proto.set_written_bytes(stats.bytes_written);
  proto.set_paused(stats.paused != 0);
  proto.set_pauses(stats.pauses);
}

void FillTotals(const engine::CacheSnapshot& snapshot, v1::CacheTotals& proto) {
  const cache::PlacementReport& report = snapshot.report;
  proto.set_budget_bytes(report.budget_bytes);
  proto.set_live_bytes(report.live_bytes);
  proto.set_cached_bytes(report.cached_bytes);
  proto.set_nodes(report.nodes);
  proto.set_checkpoints(report.checkpoints);
  for (int k = 0; k < cache::kCheckpointKinds; ++k) {
    v1::CheckpointCount& count = *proto.add_checkpoint_counts();
    count.set_kind(ToProto(static_cast<cache::CheckpointKind>(k)));
    count.set_made(report.checkpoints_made[k]);
    count.set_held(snapshot.tree.all.checkpoints[k]);
    count.set_evicted(report.checkpoints_evicted_by_kind[k]);
  }
  proto.set_checkpoints_skipped(report.checkpoints_skipped);
  proto.set_pages_evicted(report.pages_evicted);
  proto.set_eviction_passes(report.eviction_passes);
  proto.set_checkpoint_price_tokens(report.checkpoint_price_tokens);
  proto.set_eviction_order(std::string(report.eviction_order));
  proto.set_lookups(report.queries);
  proto.set_lookup_tokens(report.queried_tokens);
  proto.set_kv_match_tokens(report.kv_match_tokens);
  proto.set_state_match_tokens(report.state_match_tokens);
  proto.set_kv_hit_rate(Rate(report.kv_match_tokens, report.queried_tokens));
  proto.set_hit_rate(Rate(report.state_match_tokens, report.queried_tokens));
  proto.set_plans(report.plans);
  proto.set_plan_seconds(ToSeconds(report.plan_ns));
  proto.set_classes(report.classes);
  proto.set_classes_renewed(report.priors_renewed);
  for (const cache::TierReport& tier : report.tiers) FillTier(tier, *proto.add_tiers());
  proto.set_tier_loads(report.tier_loads.begun);
  proto.set_tier_loads_failed(report.tier_loads.failed);
  proto.set_tier_loads_too_dear(report.tier_loads.too_dear);
  proto.set_tier_loaded_tokens(report.tier_loads.tokens);
  proto.set_tier_loads_paused(report.tier_loads.paused);
}

void FillTenant(const cache::TreeReport::Tenant& tenant, v1::TenantCache& proto) {
  proto.set_tenant(tenant.name);
  proto.set_trees(tenant.totals.scopes);
  proto.set_nodes(tenant.totals.nodes);
  proto.set_kv_tokens(tenant.totals.kv_tokens);
  proto.set_hits(tenant.totals.hits);
  for (int k = 0; k < cache::kCheckpointKinds; ++k) {
    v1::CheckpointCount& count = *proto.add_checkpoint_counts();
    count.set_kind(ToProto(static_cast<cache::CheckpointKind>(k)));
    count.set_held(tenant.totals.checkpoints[k]);
  }
}

void FillNode(const cache::TreeNodeReport& node, const int32_t parent, const int32_t tenant, v1::CacheNode& proto) {
  proto.set_parent(parent);
  proto.set_tenant(tenant);
  proto.set_tree(node.scope);
  proto.set_begin(node.begin);
  proto.set_end(node.end);
  proto.set_has_kv(node.has_kv);
  if (node.checkpoint.has_value()) proto.set_checkpoint(ToProto(*node.checkpoint));
  proto.set_origin(std::string(node.origin));
  proto.set_hits(node.hits);
  proto.set_idle_seconds(ToSeconds(node.idle_ns));
  proto.set_tokens_below(node.tokens_below);
  proto.set_children_left_out(node.children_left_out);
}

constexpr char kRenewing[] = " What the class taught is being worked out anew: the next answer may differ.";

std::string InWords(const cache::PlanReport& plan) {
  switch (plan.basis) {
    case cache::PlanBasis::kNoState:
      return "The model has no recurrent state: attention KV alone is reused, and there is nothing to place.";
    case cache::PlanBasis::kNoWriting:
      return "The request, the configuration or the placement leaves nothing in the cache.";
    case cache::PlanBasis::kFormula:
      return "The placement learns nothing: beside hints, branch and end its positions follow from the length.";
    case cache::PlanBasis::kOtherParts:
      return "The prefix parts from what is there inside another one's tokens, so what classes of prefixes taught does "
             "not apply; the branch itself gets a checkpoint.";
    case cache::PlanBasis::kNothingNew:
      return "All that follow-ups repeat of this prefix is in the cache already: nothing is planned.";
    case cache::PlanBasis::kUnlearned:
      return "Too few prefixes of this class have been come back to: nothing is planned beside hints, branch and end.";
    case cache::PlanBasis::kLearned:
      break;
  }
  return fmt::format(
      "{:.2f} later requests of such a prefix are expected; {} checkpoints are planned where each saves more than its "
      "price of {:.0f} tokens, which cuts what they run again from {:.0f} to {:.0f} tokens.",
      plan.requests_expected, plan.planned, plan.price_tokens, plan.cost_without_tokens, plan.cost_tokens);
}

}  // namespace

StatusOr<int32_t> TranslateNodesMax(const v1::GetCacheStatisticsRequest& proto) {
  if (proto.nodes_max() >= 0 && proto.nodes_max() <= kSnapshotNodesMax) return proto.nodes_max();
  return InvalidArgument(fmt::format("nodes_max: {} is outside [0, {}]", proto.nodes_max(), kSnapshotNodesMax),
                         "nodes_max");
}

void FillStatistics(const engine::CacheSnapshot& snapshot, const std::optional<std::string>& tenant,
                    const int32_t nodes_max, v1::GetCacheStatisticsResponse& response) {
  if (!tenant.has_value()) FillTotals(snapshot, *response.mutable_totals());
  constexpr int32_t kLeftOut = -1;
  std::vector<int32_t> tenant_at;
  for (const cache::TreeReport::Tenant& row : snapshot.tree.tenants) {
    const bool meant = !tenant.has_value() || row.name == *tenant;
    tenant_at.push_back(meant ? response.tenants_size() : kLeftOut);
    if (meant) FillTenant(row, *response.add_tenants());
  }
  // A parent comes before its children and is of the same tenant. The snapshot holds the heaviest nodes, in the order
  // of the tree; a smaller answer takes those of the heaviest subtrees among them, whose parents are heavier still.
  std::vector<int64_t> weights;
  for (const cache::TreeNodeReport& node : snapshot.tree.nodes) {
    if (tenant_at[node.tenant] != kLeftOut) weights.push_back(node.tokens_below);
  }
  std::ranges::sort(weights, std::greater());
  const int64_t least = nodes_max >= static_cast<int32_t>(weights.size()) ? 0
                        : nodes_max == 0                                  ? INT64_MAX
                                                                          : weights[nodes_max - 1];
  std::vector<int32_t> node_at;
  for (const cache::TreeNodeReport& node : snapshot.tree.nodes) {
    const bool meant = tenant_at[node.tenant] != kLeftOut && node.tokens_below >= least &&
                       response.nodes_size() < nodes_max && (node.parent < 0 || node_at[node.parent] != kLeftOut);
    node_at.push_back(meant ? response.nodes_size() : kLeftOut);
    if (!meant) {
      if (node.parent >= 0 && node_at[node.parent] != kLeftOut) {
        v1::CacheNode& parent = *response.mutable_nodes(node_at[node.parent]);
        parent.set_children_left_out(parent.children_left_out() + 1);
      }
      continue;
    }
    FillNode(node, node.parent < 0 ? -1 : node_at[node.parent], tenant_at[node.tenant], *response.add_nodes());
  }
}

StatusOr<cache::FlushOptions> TranslateFlush(const v1::FlushCacheRequest& proto, std::optional<std::string> tenant,
                                             const bool several) {
  static constexpr std::array kParts = {cache::CachedPart::kAll, cache::CachedPart::kAll, cache::CachedPart::kKv,
                                        cache::CachedPart::kStates};
  if (proto.part() < 0 || proto.part() >= static_cast<int>(kParts.size())) {
    return InvalidArgument(fmt::format("part: {} is not known", static_cast<int>(proto.part())), "part");
  }
  cache::FlushOptions what{.tenant = std::move(tenant), .part = kParts[proto.part()]};
  if (!proto.has_salt()) return what;
  if (!what.tenant.has_value()) {
    if (several) return InvalidArgument("salt: name the tenant whose salt it is", "salt");
    what.tenant = "";  // Without tokens there is one, and it has no name.
  }
  what.salt = proto.salt();
  return what;
}

v1::GenerateRequest AsGenerate(const v1::ExplainPlanRequest& proto) {
  v1::GenerateRequest request;
  request.set_model(proto.model());
  if (proto.has_text()) request.set_text(proto.text());
  if (proto.has_tokens()) *request.mutable_tokens() = proto.tokens();
  if (proto.has_chat()) *request.mutable_chat() = proto.chat();
  request.set_add_special(proto.add_special());
  *request.mutable_cache() = proto.cache();
  request.mutable_stopping()->set_max_tokens(0);  // Nothing is generated, so a prompt may be as long as it fits.
  return request;
}

void FillPlan(const cache::PlanReport& plan, const int32_t prompt_tokens, v1::ExplainPlanResponse& response) {
  response.set_prompt_tokens(prompt_tokens);
  response.set_kv_match_tokens(plan.match.kv_tokens);
  response.set_state_match_tokens(plan.match.state_tokens);
  for (const cache::CheckpointPlace& place : plan.there) {
    v1::ExplainPlanResponse::Checkpoint& proto = *response.add_there();
    proto.set_at(place.at);
    proto.set_kind(ToProto(place.kind));
  }
  for (const cache::PlaceDecision& decision : plan.decisions) {
    Decision& proto = *response.add_decisions();
    proto.set_at(decision.place.at);
    proto.set_kind(ToProto(decision.place.kind));
    proto.set_verdict(static_cast<Decision::Verdict>(static_cast<int>(decision.verdict) + 1));
  }
  response.set_basis(static_cast<v1::ExplainPlanResponse::Basis>(static_cast<int>(plan.basis) + 1));
  response.set_explanation(InWords(plan) + (plan.renewing ? kRenewing : ""));
  response.set_segment_begin(plan.segment_begin);
  response.set_segment_end(plan.segment_end);
  response.set_eviction_price_tokens(plan.eviction_price_tokens);
  response.set_price_tokens(plan.price_tokens);
  response.set_anchor(std::string(plan.anchor));
  response.set_requests_expected(plan.requests_expected);
  for (const cache::PlanReport::Depth& depth : plan.histogram) {
    v1::ExplainPlanResponse::Depth& proto = *response.add_histogram();
    proto.set_position(depth.position);
    proto.set_requests(depth.requests);
  }
  response.set_cost_tokens(plan.cost_tokens);
  response.set_cost_without_tokens(plan.cost_without_tokens);
  for (const cache::PlanReport::Alternative& other : plan.alternatives) {
    v1::ExplainPlanResponse::Alternative& proto = *response.add_alternatives();
    proto.set_policy(std::string(other.policy));
    proto.set_checkpoints(other.checkpoints);
    proto.set_cost_tokens(other.cost_tokens);
    proto.set_total_tokens(other.cost_tokens + plan.price_tokens * other.checkpoints);
  }
}

}  // namespace invar::server
