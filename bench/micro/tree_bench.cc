// What a look at the prefix cache costs the engine thread, on trees of 10,000 and 100,000 nodes: the dearest part of a
// snapshot for pages and statistics (parts come between two steps each), its end, all of it, and the explanation of a
// plan. The best of several runs counts.
//   build/release/bin/tree_bench
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/split_mix64.h"
#include "bench/micro/best_seconds.h"
#include "cache/cache_manager.h"

namespace invar::bench {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int32_t kShownNodes = 1024;        // What the daemon asks for (server/services/cache_view.cc).
constexpr double kLimitSeconds = 5e-3;       // The step of a small model; running requests wait meanwhile.
constexpr int64_t kBudgetBytes = 1LL << 30;  // More than all of it needs.

void Append(Tokens& tokens, SplitMix64& random, const int32_t count) {
  for (int32_t i = 0; i < count; ++i) tokens.emplace_back(static_cast<int32_t>(random.Next() % 50'000));
}

// Chats that begin with one of a few system prompts and go on turn by turn, interleaved as users are; some tenants and
// salts. Nodes lie in memory in the order of their making, which is that of no walk.
class Chats {
 public:
  explicit Chats(const int64_t nodes) {
    constexpr int32_t kSystemPrompts = 40;
    std::vector<Tokens> prompts(kSystemPrompts);
    for (Tokens& prompt : prompts) Append(prompt, random_, 30 + static_cast<int32_t>(random_.Next() % 60));
    std::vector<Tokens> chats(static_cast<size_t>(nodes) / 8);
    while (cache_.Report().nodes < nodes) {
      const size_t chat = random_.Next() % chats.size();
      Tokens& tokens = chats[chat];
      if (tokens.empty()) tokens = prompts[chat % prompts.size()];
      Append(tokens, random_, 8 + static_cast<int32_t>(random_.Next() % 40));
      last_scope_ = {
          .tenant = "tenant " + std::to_string(chat % 7), .salt = chat % 3 == 0 ? "s" : "", .provenance = {}};
      Run(last_scope_, tokens);
      last_ = tokens;
    }
  }

  struct Snapshot {
    double dearest_part = 0;
    double end = 0;
    double all = 0;
  };
  Snapshot Look() const {
    Snapshot best{1, 1, 1};
    for (int run = 0; run < 20; ++run) {
      Snapshot one;
      cache::TreeWalk walk({.nodes_max = kShownNodes});
      while (!walk.is_done()) {
        const double seconds = BestSeconds(1, [&] { cache_.Continue(walk, cache::TreeWalk::kNodesAtOnce); });
        one.dearest_part = std::max(one.dearest_part, seconds);
        one.all += seconds;
      }
      one.end = BestSeconds(1, [&] { (void)walk.Report(now_); });
      one.all += one.end;
      best = {std::min(best.dearest_part, one.dearest_part), std::min(best.end, one.end), std::min(best.all, one.all)};
    }
    return best;
  }
  // Of the last chat, gone on for 32K tokens.
  void Explain() {
    if (last_.size() < 32'768) Append(last_, random_, 32'768 - static_cast<int32_t>(last_.size()));
    const auto n = static_cast<int32_t>(last_.size());
    (void)cache_.ExplainPlan({.scope = last_scope_, .tokens = last_, .prompt_tokens = n, .resume_limit = n - 1});
  }
  int64_t nodes() const { return cache_.Report().nodes; }

 private:
  void Run(const cache::Scope& scope, const Tokens& tokens) {
    const auto n = static_cast<int32_t>(tokens.size());
    cache::PrefixLease lease =
        cache_.Acquire({.scope = scope, .tokens = tokens, .prompt_tokens = n, .resume_limit = n - 1}, ++now_);
    cache_.Extend(lease, n, now_);
    std::vector<cache::StateEmission> emissions;
    cache_.Emit(lease, lease.match().state_tokens, n, now_, emissions);
    cache_.Commit(lease, tokens, now_);
    cache_.Release(std::move(lease), tokens, cache::CheckpointKind::kEnd, ++now_);
  }

  SplitMix64 random_{1};
  TimeNs now_ = 0;
  cache::Scope last_scope_;
  Tokens last_;
  cache::CacheManager cache_{
      {.shape = {.page_bytes = 64, .state_bytes = 64}, .budget_bytes = kBudgetBytes, .slots_without_bytes = 8}};
};

int Main() {
  bool all = true;
  for (const int64_t nodes : {10'000, 100'000}) {
    Chats chats(nodes);
    const auto row = [&](const char* const name, const double seconds, const double limit) {
      std::printf("%-22s %7lld nodes %10.1f us  (limit %.0f us)\n", name, static_cast<long long>(chats.nodes()),
                  1e6 * seconds, 1e6 * limit);
      all = all && (limit == 0 || seconds <= limit);
    };
    const Chats::Snapshot snapshot = chats.Look();
    row("Tree/snapshot_part", snapshot.dearest_part, kLimitSeconds);
    row("Tree/snapshot_end", snapshot.end, kLimitSeconds);
    row("Tree/snapshot_all", snapshot.all, 0);
    row("Tree/explain_plan", BestSeconds(200, [&] { chats.Explain(); }), kLimitSeconds);
  }
  return all ? 0 : 1;
}

}  // namespace
}  // namespace invar::bench

int main() { return invar::bench::Main(); }
