// Paths of nodes become outgoing prefixes, loaded windows become nodes.
#include "cache/prefix/tier_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cache/tiers/prefix_keys.h"
#include "kernels/numerics.h"

namespace invar::cache {

using kernels::kPageTokens;

namespace {

using NamedTierStats = std::vector<std::pair<std::string_view, TierStats>>;

// Why tiers did not take what they were given between two looks at them.
void LogRefusals(const NamedTierStats& before, const NamedTierStats& after) {
  for (size_t t = 0; t < after.size(); ++t) {
    const auto& [name, stats] = after[t];
    std::vector<std::string> reasons;
    for (int miss = 0; miss < kTierMissKinds; ++miss) {
      const auto at = static_cast<size_t>(miss);
      const int64_t records = stats.put_misses[at] - before[t].second.put_misses[at];
      if (records > 0) reasons.push_back(fmt::format("{} {}", records, TierMissName(TierMiss{miss})));
    }
    if (stats.paused != 0) reasons.push_back("it does not answer and is left alone");
    if (!reasons.empty())
      Logger("cache")->warn("the {} tier did not take all records: {}", name, fmt::join(reasons, ", "));
  }
}

}  // namespace

TierLink::TierLink(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers)
    : identity_(options.identity),
      store_({.shape = options.shape,
              .identity = options.identity,
              .copy_bytes_max = options.tuning.tier_copy_bytes_max,
              .deadlines = options.tuning.deadlines},
             std::move(tiers), options.wake) {}

std::optional<int64_t> TierLink::Prefetch(const PrefixCache& memory, const PrefixQuery& query,
                                          const double tokens_per_second, const TimeNs now) {
  if (empty() || !query.read) return std::nullopt;
  return store_.loader().Begin(query.scope, query.tokens, query.resume_limit, memory.Lookup(query), tokens_per_second,
                               now);
}

std::vector<Arrival> TierLink::TakeArrivals(PrefixCache& memory, const TimeNs now) {
  if (empty()) return {};
  store_.Work(now);
  std::vector<Arrival> arrivals;
  for (const LoadedWindow& loaded : store_.loader().Take()) {
    std::string_view& tier = brought_[loaded.ticket];
    if (!loaded.tier.empty() && memory.Adopt(loaded.scope, loaded.tokens, loaded.image, now)) tier = loaded.tier;
    if (loaded.has_more) {
      const PrefixQuery query{.scope = loaded.scope, .tokens = loaded.tokens, .resume_limit = loaded.limit};
      if (store_.loader().Continue(loaded.ticket, memory.Lookup(query), now)) continue;
    }
    arrivals.push_back({loaded.ticket, tier});
    brought_.erase(loaded.ticket);
  }
  return arrivals;
}

// What is not said on a node yet is worked out and left there: a unit that goes costs the names of its own pages.
std::vector<PageName> TierLink::NamesAlong(const std::span<Node* const> path, const std::span<const TokenId> tokens) {
  std::vector<PageName> names;
  for (Node* const node : path) {
    names.insert(names.end(), node->names.begin(), node->names.end());
    while (static_cast<int32_t>(node->names.size()) < node->whole_pages()) {
      const std::span<const TokenId> page = tokens.subspan(names.size() * kPageTokens, kPageTokens);
      names.push_back(
          NameOfPage(names.empty() ? ChainStart(identity_, RadixTree::ScopeOf(*node)) : names.back().chain, page));
      node->names.push_back(names.back());
    }
  }
  return names;
}

// What leads to a node and its state, as far as they are in memory. Nothing where KV is missing on the way.
std::optional<OutgoingPrefix> TierLink::PrefixTo(Node& node) {
  std::vector<Node*> path;
  for (Node* n = &node; !n->is_root(); n = n->parent) {
    if (!n->has_kv()) return std::nullopt;
    path.push_back(n);
  }
  std::reverse(path.begin(), path.end());
  std::vector<TokenId> tokens;
  for (const Node* const n : path) tokens.insert(tokens.end(), n->tokens.begin(), n->tokens.end());
  std::vector<PageName> names = NamesAlong(path, tokens);
  OutgoingPrefix prefix{.scope = RadixTree::ScopeOf(node),
                        .tokens = std::move(tokens),
                        .names = std::move(names),
                        .pages = {},
                        .state = {},
                        .used_at = node.use.used_at};
  for (const PageRef* const page : PagesAlong(path, node.end)) prefix.pages.push_back(page->bytes());
  if (node.checkpoint.has_value()) prefix.state = node.checkpoint->state.bytes();
  return prefix;
}

// False: no room for some of it.
bool TierLink::Write(Node& node, const TimeNs now) {
  if (empty()) return true;
  const std::optional<OutgoingPrefix> prefix = PrefixTo(node);
  return !prefix.has_value() || store_.writer().Write(*prefix, now);
}

bool TierLink::IsStored(Node& node, const TimeNs now) {
  const std::optional<OutgoingPrefix> prefix = PrefixTo(node);
  return prefix.has_value() && store_.writer().IsStored(*prefix, now);
}

// What is worth most first: where time is short, the rest is lost. While there is time, a tier that did not answer is
// asked again: what it does not get now it never gets.
PersistReport TierLink::Persist(const PrefixCache& memory, const Clock& clock, const TimeNs deadline,
                                const std::stop_token& hurry) {
  PersistReport report;
  if (empty()) return report;
  const std::vector<Node*> nodes = memory.ResumableNodes();
  const NamedTierStats before = store_.Stats();
  store_.writer().GiveTimeUntil(deadline);
  for (;;) {
    const int64_t left_alone = times_left_alone();
    const int64_t given = WriteAll(nodes, clock, deadline, hurry);
    report.was_cut_short = given < std::ssize(nodes) || !Settle(clock, deadline, hurry);
    report.stored = CountStored(std::span(nodes).first(static_cast<size_t>(given)), clock);
    if (report.was_cut_short || report.stored == std::ssize(nodes) || times_left_alone() == left_alone) break;
    report.was_cut_short = !AwaitTiers(clock, deadline, hurry);
    if (report.was_cut_short) break;
  }
  if (!store_.outlives_process()) return {.was_cut_short = report.was_cut_short};
  report.prefixes = std::ssize(nodes);
  if (report.stored < report.prefixes) LogRefusals(before, store_.Stats());
  return report;
}

// What became of a write is known when it has ended: it may be refused, fail, or push another one out.
int64_t TierLink::CountStored(const std::span<Node* const> nodes, const Clock& clock) {
  store_.Work(clock.Now());
  return std::ranges::count_if(nodes, [&](Node* const node) { return IsStored(*node, clock.Now()); });
}

int64_t TierLink::times_left_alone() const {
  int64_t times = store_.passed_over();
  for (const auto& [name, stats] : store_.Stats()) times += stats.pauses;
  return times;
}

// Waits for the end of a pause, which nobody tells: in slices, one at least.
bool TierLink::AwaitTiers(const Clock& clock, const TimeNs deadline, const std::stop_token& hurry) const {
  constexpr TimeNs kSliceNs = TimeNs{20} * 1'000'000;
  do {
    store_.AwaitEnd(store_.ended(), clock, std::min(deadline, clock.Now() + kSliceNs), hurry);
    if (hurry.stop_requested() || clock.Now() >= deadline) return false;
  } while (store_.is_paused());
  return true;
}

int64_t TierLink::WriteAll(const std::span<Node* const> nodes, const Clock& clock, const TimeNs deadline,
                           const std::stop_token& hurry) {
  int64_t given = 0;
  for (Node* const node : nodes) {
    if (given > 0 && (hurry.stop_requested() || clock.Now() >= deadline)) break;
    int64_t ended = store_.ended();
    while (!Write(*node, clock.Now()) && store_.writing() > 0) {  // No room: others must end first.
      if (!store_.AwaitEnd(ended, clock, deadline, hurry)) return given;
      ended = store_.ended();
    }
    ++given;
  }
  return given;
}

// Waits for what tiers have to store and to forget.
bool TierLink::Settle(const Clock& clock, const TimeNs deadline, const std::stop_token& hurry) {
  for (;;) {
    const int64_t ended = store_.ended();
    store_.Work(clock.Now());
    if (!store_.is_settling()) return true;
    // What a tier could not forget is told again later.
    if (store_.AwaitEnd(ended, clock, std::min(deadline, store_.next_work()), hurry)) continue;
    if (hurry.stop_requested() || clock.Now() >= deadline) return false;
  }
}

void TierLink::AddTo(PlacementReport& report) const {
  for (const auto& [name, stats] : store_.Stats()) report.tiers.push_back({name, stats});
  report.tier_writes = store_.writes();
  report.tier_loads = store_.loads();
}

}  // namespace invar::cache
