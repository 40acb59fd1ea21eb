// Paths of nodes become images of prefixes, loaded prefixes become nodes.
#include "cache/prefix/tier_link.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace invar::cache {

TierLink::TierLink(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers)
    : store_({.shape = options.shape, .identity = options.identity, .deadlines = options.tuning.deadlines},
             std::move(tiers), options.wake) {}

std::optional<int64_t> TierLink::Prefetch(const PrefixCache& memory, const PrefixQuery& query,
                                          const double tokens_per_second, const TimeNs now) {
  if (empty() || !query.read) return std::nullopt;
  return store_.BeginLoad(query.scope, query.tokens, query.resume_limit, memory.Lookup(query), tokens_per_second, now);
}

std::vector<Arrival> TierLink::TakeArrivals(PrefixCache& memory, const TimeNs now) {
  if (empty()) return {};
  std::vector<Arrival> arrivals;
  for (const LoadedPrefix& loaded : store_.TakeLoaded(now)) {
    const bool kept = !loaded.tier.empty() && memory.Adopt({.scope = loaded.scope,
                                                            .tokens = loaded.tokens,
                                                            .first_page = loaded.first_page,
                                                            .pages = loaded.pages,
                                                            .state = loaded.state},
                                                           now);
    arrivals.push_back({loaded.ticket, kept ? loaded.tier : std::string_view()});
  }
  return arrivals;
}

// What leads to `node`, and its state, to the tiers.
bool TierLink::Write(const Node& node, const TimeNs now) {
  if (empty()) return true;
  std::vector<const Node*> path;
  for (const Node* n = &node; !n->is_root(); n = n->parent) {
    if (!n->has_kv()) return true;
    path.push_back(n);
  }
  std::reverse(path.begin(), path.end());
  std::vector<TokenId> tokens;
  for (const Node* const n : path) tokens.insert(tokens.end(), n->tokens.begin(), n->tokens.end());
  StoredImage image{.tokens = tokens, .pages = {}, .state = {}, .used_at = node.use.used_at};
  for (const PageRef* const page : PagesAlong(path, node.end)) image.pages.push_back(page->bytes());
  if (node.checkpoint.has_value()) image.state = node.checkpoint->state.bytes();
  return store_.Write(RadixTree::ScopeOf(node), image, now);
}

// What is worth most first: where time is short, the rest is lost.
PersistReport TierLink::Persist(const PrefixCache& memory, const Clock& clock, const TimeNs deadline,
                                const std::stop_token& hurry) {
  PersistReport report;
  if (empty()) return report;
  const std::vector<const Node*> nodes = memory.ResumableNodes();
  report.prefixes = static_cast<int64_t>(nodes.size());
  for (const Node* const node : nodes) {
    int64_t ended = store_.ended();
    while (!Write(*node, clock.Now()) && store_.writing_bytes() > 0) {  // No room: others must end first.
      report.was_cut_short = !store_.AwaitEnd(ended, clock, deadline, hurry);
      if (report.was_cut_short) return report;
      ended = store_.ended();
    }
    ++report.given;
    if (hurry.stop_requested() || clock.Now() >= deadline) break;
  }
  while (store_.writing_bytes() > 0 || store_.dropping() > 0) {
    report.was_cut_short = !store_.AwaitEnd(store_.ended(), clock, deadline, hurry);
    if (report.was_cut_short) break;
  }
  report.was_cut_short = report.was_cut_short || report.given < report.prefixes;
  return report;
}

void TierLink::AddTo(PlacementReport& report) const {
  for (const auto& [name, stats] : store_.Stats()) {
    report.tiers.push_back(
        {.name = name,
         .records = stats.records,
         .bytes = stats.bytes,
         .hits = stats.hits,
         .misses = std::accumulate(stats.get_misses.begin(), stats.get_misses.end(), int64_t{0}),
         .stored = stats.stored,
         .store_failures = std::accumulate(stats.put_misses.begin(), stats.put_misses.end(), int64_t{0}),
         .bytes_read = stats.bytes_read,
         .bytes_written = stats.bytes_written});
  }
  report.tier_loads = store_.counts().loads;
  report.tier_loads_failed = store_.counts().loads_failed;
  report.tier_loads_too_dear = store_.counts().loads_too_dear;
  report.tier_loaded_tokens = store_.counts().loaded_tokens;
}

}  // namespace invar::cache
