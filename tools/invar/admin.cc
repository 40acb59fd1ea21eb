// invar admin: what an operator sees and does with a daemon's prefix cache. `cache` prints statistics, `flush` forgets,
// `explain` says where a prompt would leave checkpoints and why. With --json the answer's own message as one JSON
// object.
#include <google/protobuf/util/json_util.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "invar/v1/admin.grpc.pb.h"
#include "tools/invar/client.h"
#include "tools/invar/command.h"
#include "tools/invar/parse.h"
#include "tools/invar/request_input.h"

namespace invar::tools {
namespace {

using Explained = v1::ExplainPlanResponse;

// Above what the daemon waits for its engine.
constexpr std::chrono::seconds kTimeout{30};

struct Options {
  ClientOptions client;
  std::string tenant;
  bool json = false;

  int32_t nodes = 0;

  std::optional<std::string> salt;
  std::string part = "all";
  bool all = false;

  RequestInput input;
  std::string explain_salt;
  std::vector<int32_t> hints;
};

// "PROMPT_END" as "prompt_end".
std::string Lower(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}
std::string KindName(const v1::CheckpointKind kind) {
  return Lower(v1::CheckpointKind_Name(kind).substr(sizeof("CHECKPOINT_KIND_") - 1));
}

int PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return kExitFailure;
  std::printf("%s\n", json.c_str());
  return kExitOk;
}

void PrintTotals(const v1::CacheTotals& totals) {
  const double mb = 1e6;
  std::printf("budget %.1f MB: live %.1f, cached %.1f\n", static_cast<double>(totals.budget_bytes()) / mb,
              static_cast<double>(totals.live_bytes()) / mb, static_cast<double>(totals.cached_bytes()) / mb);
  std::printf("%" PRId64 " lookups: KV there of %.1f %% of the tokens, not run again %.1f %%\n", totals.lookups(),
              100 * totals.kv_hit_rate(), 100 * totals.hit_rate());
  std::printf("price of a checkpoint %.1f tokens; eviction order %s\n", totals.checkpoint_price_tokens(),
              totals.eviction_order().c_str());
  std::printf("%" PRId64 " plans in %.4f s; %" PRId64 " classes of prefixes\n", totals.plans(), totals.plan_seconds(),
              totals.classes());
  std::printf("%-12s %10s %10s %10s\n", "checkpoints", "made", "held", "evicted");
  for (const v1::CheckpointCount& count : totals.checkpoint_counts()) {
    std::printf("  %-10s %10" PRId64 " %10" PRId64 " %10" PRId64 "\n", KindName(count.kind()).c_str(), count.made(),
                count.held(), count.evicted());
  }
  for (const v1::TierStatistics& tier : totals.tiers()) {
    std::printf("tier %s: %" PRId64 " records, %" PRId64 " bytes; %" PRId64 " hits, %" PRId64 " misses%s\n",
                tier.name().c_str(), tier.records(), tier.bytes(), tier.hits(), tier.misses(),
                tier.paused() ? "; does not answer and is left alone" : "");
  }
}

void PrintStatistics(const v1::GetCacheStatisticsResponse& response) {
  if (response.has_totals()) PrintTotals(response.totals());
  for (const v1::TenantCache& tenant : response.tenants()) {
    int64_t checkpoints = 0;
    for (const v1::CheckpointCount& count : tenant.checkpoint_counts()) checkpoints += count.held();
    std::printf("tenant %s: %" PRId64 " salts, %" PRId64 " nodes, %" PRId64 " tokens, %" PRId64 " checkpoints, %" PRId64
                " hits\n",
                tenant.tenant().empty() ? "(none)" : tenant.tenant().c_str(), tenant.trees(), tenant.nodes(),
                tenant.kv_tokens(), checkpoints, tenant.hits());
  }
  std::vector<int> depths;
  for (const v1::CacheNode& node : response.nodes()) {
    depths.push_back(node.parent() < 0 ? 0 : depths[static_cast<size_t>(node.parent())] + 1);
    std::printf("%*s[%d, %d) %d hits, idle %.0f s%s%s\n", 2 * depths.back() + 2, "", node.begin(), node.end(),
                node.hits(), node.idle_seconds(),
                node.checkpoint() == v1::CHECKPOINT_KIND_UNSPECIFIED ? "" : ", checkpoint ",
                node.checkpoint() == v1::CHECKPOINT_KIND_UNSPECIFIED ? "" : KindName(node.checkpoint()).c_str());
  }
}

void PrintPlan(const Explained& plan) {
  std::printf("%d tokens; KV of %d is there, state of %d\n", plan.prompt_tokens(), plan.kv_match_tokens(),
              plan.state_match_tokens());
  for (const Explained::Checkpoint& place : plan.there()) {
    std::printf("  there:  %6d  %s\n", place.at(), KindName(place.kind()).c_str());
  }
  for (const Explained::Decision& decision : plan.decisions()) {
    const bool placed = decision.verdict() == Explained::Decision::PLACED;
    std::printf("  %s %6d  %s%s%s\n", placed ? "placed:" : "not:   ", decision.at(), KindName(decision.kind()).c_str(),
                placed ? "" : ", ", placed ? "" : Lower(Explained::Decision::Verdict_Name(decision.verdict())).c_str());
  }
  std::printf("%s\n", plan.explanation().c_str());
  for (const Explained::Alternative& other : plan.alternatives()) {
    std::printf("  %-18s %3d checkpoints, %10.0f tokens run again, %10.0f with their price\n", other.policy().c_str(),
                other.checkpoints(), other.cost_tokens(), other.total_tokens());
  }
}

// Runs one call; prints the answer or the error.
template <typename Response, typename Call, typename Print>
int Answer(const Options& o, const Call& call, const Print& print) {
  const std::shared_ptr<grpc::Channel> channel = OpenChannel(o.client);
  if (channel == nullptr) return kExitFailure;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  Authorize(o.client, context);
  Response response;
  const grpc::Status status = call(*v1::AdminService::NewStub(channel), context, response);
  if (!status.ok()) {
    PrintError("admin", status);
    return kExitFailure;
  }
  if (o.json) return PrintJson(response);
  print(response);
  return kExitOk;
}

int RunCache(const Options& o) {
  v1::GetCacheStatisticsRequest request;
  request.set_tenant(o.tenant);
  request.set_nodes_max(o.nodes);
  return Answer<v1::GetCacheStatisticsResponse>(
      o,
      [&](auto& stub, auto& context, auto& response) { return stub.GetCacheStatistics(&context, request, &response); },
      PrintStatistics);
}

int RunFlush(const Options& o) {
  if (!o.all && o.tenant.empty() && !o.salt.has_value()) {
    std::fputs("invar admin flush: what? Give --tenant NAME, --salt S, or --all for all that the token speaks for\n",
               stderr);
    return kExitUsage;
  }
  v1::FlushCacheRequest request;
  request.set_tenant(o.tenant);
  if (o.salt.has_value()) request.set_salt(*o.salt);
  request.set_part(o.part == "kv"       ? v1::FlushCacheRequest::KV
                   : o.part == "states" ? v1::FlushCacheRequest::STATES
                                        : v1::FlushCacheRequest::ALL);
  return Answer<v1::FlushCacheResponse>(
      o, [&](auto& stub, auto& context, auto& response) { return stub.FlushCache(&context, request, &response); },
      [](const v1::FlushCacheResponse& response) {
        std::printf("freed %" PRId64 " bytes: %" PRId64 " nodes, %" PRId64 " checkpoints\n", response.freed_bytes(),
                    response.freed_nodes(), response.freed_checkpoints());
      });
}

int RunExplain(const Options& o) {
  v1::GenerateRequest input;
  if (const Status s = FillInput(o.input, input); !s.ok()) {
    std::fprintf(stderr, "invar admin explain: %s\n", s.message().c_str());
    return kExitUsage;
  }
  v1::ExplainPlanRequest request;
  request.set_tenant(o.tenant);
  if (input.has_text()) request.set_text(input.text());
  if (input.has_tokens()) *request.mutable_tokens() = input.tokens();
  if (input.has_chat()) *request.mutable_chat() = input.chat();
  request.mutable_cache()->set_salt(o.explain_salt);
  for (const int32_t hint : o.hints) request.mutable_cache()->add_checkpoint_hints(hint);
  return Answer<Explained>(
      o, [&](auto& stub, auto& context, auto& response) { return stub.ExplainPlan(&context, request, &response); },
      PrintPlan);
}

CLI::App& AddAction(CLI::App& app, const char* name, const char* summary, Options& o) {
  CLI::App& action = *app.add_subcommand(name, summary);
  AddClientOptions(action, o.client);
  action.add_option("--tenant", o.tenant, "Whose; absent: all that the token speaks for (explain: the caller's own)");
  action.add_flag("--json", o.json, "One JSON object: the answer as in proto/invar/v1/admin.proto");
  return action;
}

}  // namespace

int RunAdmin(int argc, char** argv) {
  Options o;
  CLI::App app(
      "invar admin: the prefix cache of a daemon. With API tokens configured, a token with admin: true speaks for all "
      "tenants, any other one for its own.");
  app.require_subcommand(1);
  CLI::App& cache = AddAction(app, "cache", "What it did and holds", o);
  cache.add_option("--nodes", o.nodes, "Show the tree too: its so many heaviest nodes, at most 1024");
  CLI::App& flush = AddAction(app, "flush", "Forget cached prefixes; running requests go on", o);
  flush.add_option("--salt", o.salt, "One salt of the tenant alone; \"\": requests without one");
  flush.add_option("--part", o.part, "KV and states, or one of them in memory alone")
      ->check(CLI::IsMember({"all", "kv", "states"}));
  flush.add_flag("--all", o.all, "All that the token speaks for");
  CLI::App& explain = AddAction(app, "explain", "Where a prompt would leave checkpoints, and why there", o);
  AddInputOptions(explain, o.input);
  explain.add_option("--salt", o.explain_salt, "The request's cache salt");
  explain.add_option("--hints", o.hints, "The request's checkpoint hints: 100,200")->delimiter(',');
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  if (cache.parsed()) return RunCache(o);
  return flush.parsed() ? RunFlush(o) : RunExplain(o);
}

}  // namespace invar::tools
