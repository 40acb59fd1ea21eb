// The calls of cache_manager.h over tree, memory and evictor.
#include "cache/cache_manager.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "cache/checkpoint/placement.h"
#include "cache/checkpoint/planner.h"
#include "cache/evict/duel.h"
#include "cache/evict/evictor.h"
#include "cache/evict/orders.h"
#include "cache/prefix/radix_tree.h"
#include "cache/prefix/resume.h"
#include "cache/tiers/prefix_store.h"

namespace invar::cache {
namespace {

// A sequence that decodes is published so often: the walk is per token, the use of it is rare.
constexpr int32_t kPublishEvery = kernels::kPageTokens;
// Two checkpoints closer than this are one: running so many tokens is cheaper than keeping a state.
constexpr int32_t kNearTokens = kernels::kPageTokens;
// A checkpoint so close behind the one resumed from is not made either.
constexpr int32_t kSpacingMin = 8;

// What a planned checkpoint must be expected to save: tokens, and as many times what one that is evicted was worth. It
// is a guess about a prefix nobody came back to, where most others have been come back to.
constexpr int64_t kPlannedTokensMin = 300;
constexpr double kPlannedPriceFactor = 4.0;

int32_t StableEnd(const PrefixQuery& query) {
  return query.stable_tokens > 0 ? query.stable_tokens : query.prompt_tokens - 1;
}

// How many requests in a row a request follows up: it does where the last place it passes that requests are expected at
// is the end of one.
int32_t TurnsBefore(const Match& match) {
  for (auto node = match.nodes.rbegin(); node != match.nodes.rend(); ++node) {
    const NodeUse& use = (*node)->use;
    if ((*node)->end > match.tokens || use.origin == UseOrigin::kNone) continue;
    return use.origin == UseOrigin::kEnd ? use.turns + 1 : 0;
  }
  return 0;
}

void MarkUsed(Node& node, const TimeNs now) {
  for (Node* n = &node; !n->is_root(); n = n->parent) n->use.used_at = now;
}

// The registry's own copy of `name`, which outlives every report.
std::string_view NameOf(const std::string_view name) {
  const auto names = EvictionOrderNames();
  const auto place = std::find(names.begin(), names.end(), name);
  Check(place != names.end(), "an eviction order has a known name", name);
  return *place;
}

std::array<std::unique_ptr<EvictionOrder>, 2> MakeOrders(const std::array<std::string_view, 2>& names) {
  return {MakeEvictionOrder(names[0]), names[1].empty() ? nullptr : MakeEvictionOrder(names[1])};
}

CacheOptions DirectoryOptions(CacheOptions options) {
  options.backing = Backing::kNone;
  options.wake = {};
  options.plans = false;  // Orders are judged by what all of them would have.
  return options;
}

}  // namespace

struct CacheManager::Impl final : public EvictionListener {
  Impl(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers)
      : shape(options.shape),
        has_state(options.shape.state_bytes > 0),
        memory(options.shape, options.budget_bytes, options.slots_without_bytes, options.backing),
        placement(MakePlacement(options.placement)),
        traits(placement != nullptr ? placement->traits() : PlacementTraits{}),
        placement_slots(options.placement_slots),
        plans(options.plans && has_state && traits.reads_demand),
        planner({.slots = options.placement_slots}, placement, executor),
        duels(options.eviction == kDuelName),
        order_names(duels ? kDuelOrders : std::array<std::string_view, 2>{NameOf(options.eviction), {}}),
        orders(MakeOrders(order_names)),
        directory_options(DirectoryOptions(options)),
        probation_bytes(static_cast<int64_t>(options.probation_share * static_cast<double>(options.budget_bytes))),
        evictor(tree, memory, demand, *this, has_state),
        store({.shape = options.shape,
               .identity = options.identity,
               .read_deadline = options.tier_read_limit,
               .write_deadline = options.tier_write_limit},
              std::move(tiers), options.wake) {
    Check(placement != nullptr, "a placement has a known name", options.placement);
  }

  void Evicting(const Node& node, const TimeNs now) override { Write(node, now); }
  bool Write(const Node& node, TimeNs now);
  void Insert(LoadedPrefix& loaded, TimeNs now);

  // What a checkpoint must save to be worth its memory, by what was evicted of late.
  double PriceTokens() const { return evictor.price_per_byte() * static_cast<double>(shape.state_bytes); }
  bool MakeRoom(const int64_t bytes, const TimeNs now) { return evictor.MakeRoom(bytes, *orders[score.winner()], now); }
  void PlayPrompt(const PrefixQuery& query, TimeNs now);
  void PlayEnd(const PrefixLease& lease, std::span<const TokenId> computed, CheckpointKind kind, TimeNs now);
  PageTable SharePages(Match& found, TimeNs now);
  static void ExpectDemand(PrefixLease& lease, const PrefixQuery& query, int32_t matched, int32_t turns);
  void MeetPlanned(Node& node, TimeNs now);
  PageRef TakePage(TimeNs now);
  SlotRef SlotWith(const ResumePoint& point, TimeNs now);
  std::vector<CheckpointPlace> PlacesFor(const PrefixQuery& query, const PrefixMatch& match,
                                         const std::optional<ClassKey>& key, int32_t private_from);
  ClassKey KeyOf(const Scope& scope, const Node* trunk, int32_t length) const;
  std::optional<ClassKey> ClassOf(const PrefixQuery& query, const Match& found) const;
  void ObserveOverlap(const Match& found);
  void ObserveEntry(const PrefixLease& lease, std::span<const TokenId> tokens, int32_t to);
  void Publish(PrefixLease& lease, std::span<const TokenId> tokens, TimeNs now);
  static void UsePagesOfTheTree(PrefixLease& lease, const Node& end);
  void Keep(const PrefixLease& lease, std::span<const TokenId> tokens, int32_t at, CheckpointKind kind, SlotRef state,
            TimeNs now);

  // Set at construction.
  const StateShape shape;
  const bool has_state;

  CacheMemory memory;
  RadixTree tree;                                    // After the memory: nodes give blocks back.
  const std::shared_ptr<PlacementPolicy> placement;  // Shared: a job of the planner may outlive it.
  const PlacementTraits traits;
  const int32_t placement_slots;
  const bool plans;  // By what classes of prefixes taught.
  InlinePlanExecutor executor;
  CheckpointPlanner planner;
  const bool duels;
  const std::array<std::string_view, 2> order_names;
  const std::array<std::unique_ptr<EvictionOrder>, 2> orders;  // Without a duel only the first.
  const CacheOptions directory_options;
  const int64_t probation_bytes;
  DemandModel demand;
  Evictor evictor;
  PrefixStore store;
  PlacementReport report;

  // Of the duel: made when the first unit has to go, since before there is nothing to decide.
  std::array<std::unique_ptr<CacheManager>, 2> directories;
  DuelScore score;
};

CacheManager::CacheManager(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers)
    : impl_(std::make_unique<Impl>(options, std::move(tiers))) {}
CacheManager::~CacheManager() = default;

// --- Begin ---

PrefixLease CacheManager::Acquire(const PrefixQuery& query, const TimeNs now) {
  const int32_t tokens = static_cast<int32_t>(query.tokens.size());
  Check(query.resume_limit < tokens, "a token is left to run", query.resume_limit, tokens);
  if (impl_->duels) impl_->PlayPrompt(query, now);
  Match found;
  if (query.read) found = impl_->tree.Find(query.scope, query.tokens);
  for (Node* const node : found.nodes) node->use.used_at = now;
  const int32_t matched = found.tokens;
  const int32_t turns = TurnsBefore(found);
  const std::optional<ClassKey> key = impl_->ClassOf(query, found);
  if (query.read && tokens == query.prompt_tokens) impl_->ObserveOverlap(found);
  // Nothing of nodes without KV is claimed below, so making room may end them.
  while (!found.nodes.empty() && found.nodes.back()->begin >= found.kv_tokens) found.nodes.pop_back();
  PageTable pages = impl_->SharePages(found, now);
  const ResumePoint point = Resume(found, query.resume_limit, impl_->has_state);
  PrefixLease lease(query.scope, impl_->SlotWith(point, now));
  lease.pages_ = std::move(pages);
  lease.match_ = point.match;
  lease.publishes_ = query.write && impl_->traits.keeps_kv;
  lease.places_ = impl_->PlacesFor(query, point.match, key, matched);
  impl_->ExpectDemand(lease, query, matched, turns);
  if (point.from != nullptr) impl_->MeetPlanned(*point.from, now);
  if (query.read) {
    ++impl_->report.queries;
    impl_->report.queried_tokens += tokens;
    impl_->report.kv_match_tokens += point.match.kv_tokens;
    impl_->report.state_match_tokens += point.match.state_tokens;
    impl_->report.recomputed_tokens += std::max(0, point.match.kv_tokens - point.match.state_tokens);
  }
  return lease;
}

// Claims on the pages of `found`. Others read the shared part of the last one while this sequence goes on in it, so it
// gets a copy; where the budget has no room for that, what is found ends with the page before.
PageTable CacheManager::Impl::SharePages(Match& found, const TimeNs now) {
  PageTable pages;
  for (const PageRef* const page : PagesAlong(found.nodes, found.kv_tokens)) pages.Append(page->Share(Holder::kLive));
  if (found.kv_tokens % kernels::kPageTokens == 0) return pages;
  const int32_t last = pages.size() - 1;
  if (MakeRoom(shape.page_bytes, now)) {
    std::optional<PageRef> own = memory.TakePage(Fill::kNone);
    own->CopyFrom(pages.ref(last).bytes());
    pages.Replace(last, *std::move(own));
  } else {
    pages.RemoveLast();
    found.kv_tokens = last * kernels::kPageTokens;
  }
  return pages;
}

// A sequence that goes on after a preemption comes to what it left itself: no demand.
void CacheManager::Impl::ExpectDemand(PrefixLease& lease, const PrefixQuery& query, const int32_t matched,
                                      const int32_t turns) {
  const bool goes_on = static_cast<int32_t>(query.tokens.size()) > query.prompt_tokens;
  lease.turns_ = goes_on ? std::max(0, turns - 1) : turns;
  if (goes_on) return;
  lease.met_at_ = matched;
  lease.private_from_ = matched;
  lease.stable_at_ = StableEnd(query);
}

// The expectation that placed a checkpoint has come true.
void CacheManager::Impl::MeetPlanned(Node& node, const TimeNs now) {
  evictor.Promote(node);
  if (node.use.origin == UseOrigin::kPlanned) demand.Hit(node.use, now);
}

PageRef CacheManager::Impl::TakePage(const TimeNs now) {
  const bool room = MakeRoom(shape.page_bytes, now);
  std::optional<PageRef> page = memory.TakePage(Fill::kZero);
  Check(room && page.has_value(), "live sequences leave room for the pages they were planned with");
  return *std::move(page);
}

// A running slot with the state of `point`. Where the budget does not hold both, the checkpoint itself becomes it.
SlotRef CacheManager::Impl::SlotWith(const ResumePoint& point, const TimeNs now) {
  std::optional<SlotRef> checkpoint;
  if (point.from != nullptr) checkpoint = point.from->checkpoint->state.Share(Holder::kLive);
  if (MakeRoom(shape.state_bytes, now)) {
    std::optional<SlotRef> slot = memory.TakeSlot(checkpoint.has_value() ? Fill::kNone : Fill::kZero);
    if (slot.has_value()) {
      if (checkpoint.has_value()) slot->CopyFrom(checkpoint->bytes());
      return *std::move(slot);
    }
  }
  Check(checkpoint.has_value(), "live sequences leave room for one more slot");
  point.from->checkpoint.reset();
  return *std::move(checkpoint);
}

// The class of what `query` brings beyond `found`; none where it parts in the middle of what another brought.
std::optional<ClassKey> CacheManager::Impl::ClassOf(const PrefixQuery& query, const Match& found) const {
  const int32_t length = StableEnd(query) - found.tokens;
  if (!plans || length < 1 || (!found.nodes.empty() && found.nodes.back()->end != found.tokens)) return std::nullopt;
  return KeyOf(query.scope, found.nodes.empty() ? nullptr : found.nodes.back(), length);
}

// Of `length` tokens after `trunk`, or (null) from the start on.
ClassKey CacheManager::Impl::KeyOf(const Scope& scope, const Node* const trunk, const int32_t length) const {
  const int64_t root = tree.RootId(scope);
  return {.space = static_cast<uint64_t>(root),
          .trunk = trunk == nullptr ? root : trunk->id,
          .size_bucket = SizeBucket(length)};
}

// Where in what an earlier prefix brought this one stops matching.
void CacheManager::Impl::ObserveOverlap(const Match& found) {
  if (!plans || found.nodes.empty() || !found.nodes.back()->segment.has_value()) return;
  const PrivateSegment& segment = *found.nodes.back()->segment;
  if (found.tokens <= segment.from || found.tokens > segment.to) return;
  planner.ObserveOverlap(segment.key, {.length = segment.to - segment.from, .depth = found.tokens - segment.from});
}

// What a prefix brought is in the tree: [lease.private_from_, to) of `tokens`.
void CacheManager::Impl::ObserveEntry(const PrefixLease& lease, const std::span<const TokenId> tokens,
                                      const int32_t to) {
  const int32_t from = lease.private_from_;
  if (!plans || to <= from) return;
  const ClassKey key = KeyOf(lease.scope_, from == 0 ? nullptr : &tree.NodeAt(lease.scope_, tokens, from), to - from);
  planner.ObserveEntry(key);
  for (Node* node = &tree.NodeAt(lease.scope_, tokens, to); !node->is_root() && node->begin >= from;
       node = node->parent) {
    node->segment = PrivateSegment{key, from, to};
  }
}

std::vector<CheckpointPlace> CacheManager::Impl::PlacesFor(const PrefixQuery& query, const PrefixMatch& match,
                                                           const std::optional<ClassKey>& key,
                                                           const int32_t private_from) {
  if (!has_state || !query.write || !traits.keeps_kv) return {};
  std::vector<CheckpointPlace> places;
  const int32_t first = match.state_tokens + 1;
  const int32_t last = static_cast<int32_t>(query.tokens.size()) - 1;
  // In the order of their claim: a later one close to an earlier one is dropped.
  const auto add = [&](const int32_t at, const CheckpointKind kind) {
    if (at < first || at > last) return;
    const bool near = std::any_of(places.begin(), places.end(),
                                  [&](const CheckpointPlace& place) { return std::abs(place.at - at) < kNearTokens; });
    if (!near && at - match.state_tokens >= kSpacingMin) places.push_back({at, kind});
  };
  if (traits.at_hints) {
    for (const int32_t hint : query.hints) add(hint, CheckpointKind::kHint);
  }
  if (traits.at_branch && match.kv_tokens > match.state_tokens) add(match.kv_tokens, CheckpointKind::kBranch);
  const int32_t stable = StableEnd(query);
  if (traits.at_end) add(stable, CheckpointKind::kPromptEnd);
  if (key.has_value()) {
    const int64_t price = std::max(kPlannedTokensMin, static_cast<int64_t>(kPlannedPriceFactor * PriceTokens()));
    for (const Candidate& planned : planner.Plan({.key = *key,
                                    .resume = match.state_tokens,
                                    .from = std::max(private_from, match.state_tokens),
                                    .to = last,
                                    .price = price * kWeightOne})) {
      if (planned.kind == CheckpointKind::kPlanned) add(planned.at, CheckpointKind::kPlanned);
    }
  }
  if (!traits.reads_demand && stable > 0) {
    for (const int32_t at : placement->Place({.demand = {}, .length = stable, .slots = placement_slots, .fixed = {}})) {
      add(at, CheckpointKind::kPlanned);
    }
  }
  std::sort(places.begin(), places.end(),
            [](const CheckpointPlace& a, const CheckpointPlace& b) { return a.at < b.at; });
  return places;
}

// --- A span ---

void CacheManager::Extend(PrefixLease& lease, const int32_t end, const TimeNs now) {
  while (lease.pages_.size() < impl_->shape.PagesFor(end)) lease.pages_.Append(impl_->TakePage(now));
}

void CacheManager::Emit(PrefixLease& lease, const int32_t first, const int32_t end, const TimeNs now,
                        std::vector<StateEmission>& out) {
  Check(lease.emissions_.empty(), "a span is committed before the next");
  while (!lease.places_.empty() && lease.places_.front().at <= end) {
    const CheckpointPlace place = lease.places_.front();
    lease.places_.erase(lease.places_.begin());
    if (place.at <= first) continue;
    std::optional<SlotRef> slot;
    if (impl_->MakeRoom(impl_->shape.state_bytes, now)) slot = impl_->memory.TakeSlot(Fill::kNone);
    if (!slot.has_value()) {
      ++impl_->report.checkpoints_skipped;
      continue;
    }
    out.push_back({place.at, slot->id()});
    lease.emissions_.push_back({place.at, place.kind, *std::move(slot)});
  }
}

void CacheManager::Commit(PrefixLease& lease, const std::span<const TokenId> computed, const TimeNs now) {
  const int32_t tokens = static_cast<int32_t>(computed.size());
  if (!lease.publishes_ || (lease.emissions_.empty() && tokens - lease.published_ < kPublishEvery)) return;
  impl_->Publish(lease, computed, now);
  for (PrefixLease::Emission& emission : lease.emissions_) {
    impl_->Keep(lease, computed, emission.at, emission.kind, std::move(emission.state), now);
  }
  lease.emissions_.clear();
}

void CacheManager::Impl::Publish(PrefixLease& lease, const std::span<const TokenId> tokens, const TimeNs now) {
  Node& node = tree.Insert(lease.scope_, tokens, lease.pages_);
  MarkUsed(node, now);
  lease.published_ = static_cast<int32_t>(tokens.size());
  UsePagesOfTheTree(lease, node);
  if (lease.met_at_ > 0 && lease.met_at_ <= lease.published_) {
    demand.Hit(tree.NodeAt(lease.scope_, tokens, std::exchange(lease.met_at_, 0)).use, now);
  }
  if (lease.stable_at_ > 0 && lease.stable_at_ <= lease.published_) {
    const int32_t stable_at = std::exchange(lease.stable_at_, 0);
    ObserveEntry(lease, tokens, stable_at);
    Node& stable = tree.NodeAt(lease.scope_, tokens, stable_at);
    DemandModel::Begin(stable.use, UseOrigin::kEnd, now, lease.turns_);
  }
}

// Where another sequence was here first, its pages hold the same bits, and this one's own go. Otherwise the tree's
// would lie, cached, above a leaf that this sequence holds: neither live nor to be had by cutting leaves. Only whole
// pages: in its last one the sequence goes on writing.
void CacheManager::Impl::UsePagesOfTheTree(PrefixLease& lease, const Node& end) {
  int32_t below = end.end / kernels::kPageTokens;  // Pages from here on are done, or a deeper node's.
  for (const Node* node = &end; !node->is_root(); node = node->parent) {
    for (int32_t p = node->first_page(); p < below; ++p) {
      const PageRef& page = node->pages[p - node->first_page()];
      if (page.id() != lease.pages_.ref(p).id()) lease.pages_.Replace(p, page.Share(Holder::kLive));
    }
    below = std::min(below, node->first_page());
  }
}

// Requires: the tree holds `tokens`.
void CacheManager::Impl::Keep(const PrefixLease& lease, const std::span<const TokenId> tokens, const int32_t at,
                              const CheckpointKind kind, SlotRef state, const TimeNs now) {
  Node& node = tree.NodeAt(lease.scope_, tokens, at);
  node.use.used_at = now;
  if (node.checkpoint.has_value()) return;  // Another sequence was here: the same bits.
  node.checkpoint = Checkpoint{state.Share(Holder::kCached), kind};
  ++report.checkpoints_made[static_cast<size_t>(kind)];
  if (kind == CheckpointKind::kPlanned && traits.reads_demand) {
    DemandModel::Begin(node.use, UseOrigin::kPlanned, now);
    evictor.PutOnProbation(node, probation_bytes, now);
  }
}

// --- End ---

void CacheManager::Release(PrefixLease lease, const std::span<const TokenId> computed, const CheckpointKind kind,
                           const TimeNs now) {
  if (!lease.publishes_ || computed.empty()) return;
  if (impl_->duels) impl_->PlayEnd(lease, computed, kind, now);
  impl_->Publish(lease, computed, now);
  if (kind == CheckpointKind::kEnd) {
    Node& end = impl_->tree.NodeAt(lease.scope_, computed, static_cast<int32_t>(computed.size()));
    DemandModel::Begin(end.use, UseOrigin::kEnd, now, lease.turns_);
  }
  if (impl_->has_state && (impl_->traits.at_end || kind == CheckpointKind::kPreempted)) {
    impl_->Keep(lease, computed, static_cast<int32_t>(computed.size()), kind, std::move(lease.slot_), now);
  }
}

void CacheManager::Flush(const FlushOptions& what, const TimeNs now) {
  const Scope* const scope = what.scope.has_value() ? &*what.scope : nullptr;
  if (what.part == CachedPart::kAll) {
    impl_->tree.Clear(scope);
    impl_->store.Drop(scope, now);
  } else if (!impl_->has_state) {
    if (what.part == CachedPart::kKv) impl_->tree.Clear(scope);
  } else {
    impl_->tree.ForEach([&](const Scope& of_node, Node& node) {
      if (scope != nullptr && of_node != *scope) return;
      if (what.part == CachedPart::kKv) node.pages.clear();
      if (what.part == CachedPart::kStates) node.checkpoint.reset();
    });
  }
  if (what.part != CachedPart::kKv || !impl_->has_state) impl_->evictor.ForgetProbation();
  for (const std::unique_ptr<CacheManager>& directory : impl_->directories) {
    if (directory != nullptr) directory->Flush(what, now);
  }
}

// --- The duel ---

// One sequence at a time in each directory, so what fits into the cache fits there.
void CacheManager::Impl::PlayPrompt(const PrefixQuery& query, const TimeNs now) {
  if (evictor.counts().passes == 0 || !query.read || !query.write) return;
  std::array<int32_t, 2> resumed = {};
  const int32_t tokens = static_cast<int32_t>(query.tokens.size());
  for (size_t i = 0; i < directories.size(); ++i) {
    if (directories[i] == nullptr) {
      CacheOptions options = directory_options;
      options.eviction = order_names[i];
      directories[i] = std::make_unique<CacheManager>(options);
    }
    CacheManager& directory = *directories[i];
    PrefixLease lease = directory.Acquire(query, now);
    resumed[i] = lease.match().state_tokens;
    std::vector<StateEmission> emissions;
    directory.Extend(lease, tokens, now);
    directory.Emit(lease, resumed[i], tokens, now, emissions);
    directory.Commit(lease, query.tokens, now);
  }
  score.Count(resumed);
}

void CacheManager::Impl::PlayEnd(const PrefixLease& lease, const std::span<const TokenId> computed,
                                 const CheckpointKind kind, const TimeNs now) {
  const int32_t tokens = static_cast<int32_t>(computed.size());
  for (const std::unique_ptr<CacheManager>& directory : directories) {
    if (directory == nullptr) continue;
    // More tokens than its prompt: it goes on, nobody comes to it.
    PrefixLease end = directory->Acquire({.scope = lease.scope_,
                                          .tokens = computed,
                                          .prompt_tokens = tokens - 1,
                                          .resume_limit = tokens - 1,
                                          .hints = {}},
                                         now);
    end.places_.clear();
    directory->Extend(end, tokens, now);
    directory->Release(std::move(end), computed, kind, now);
  }
}

// --- Tiers ---

std::optional<int64_t> CacheManager::Prefetch(const PrefixQuery& query, const double tokens_per_second,
                                              const TimeNs now) {
  if (impl_->store.empty() || !query.read) return std::nullopt;
  const Match found = impl_->tree.Find(query.scope, query.tokens);
  const ResumePoint point = Resume(found, query.resume_limit, impl_->has_state);
  return impl_->store.BeginLoad(query.scope, query.tokens, query.resume_limit, point.match, tokens_per_second, now);
}

std::vector<Arrival> CacheManager::TakeArrivals(const TimeNs now) {
  if (impl_->store.empty()) return {};
  std::vector<Arrival> arrivals;
  for (LoadedPrefix& loaded : impl_->store.TakeLoaded(now)) {
    if (!loaded.tier.empty()) impl_->Insert(loaded, now);
    arrivals.push_back({loaded.ticket, loaded.tier});
  }
  return arrivals;
}

TimeNs CacheManager::next_arrival() const { return impl_->store.next_poll(); }

// Into memory that is free or only cached. Where that does not suffice, or what the pages hang on has gone meanwhile,
// nothing is kept.
void CacheManager::Impl::Insert(LoadedPrefix& loaded, const TimeNs now) {
  Match found = tree.Find(loaded.scope, loaded.tokens);
  const int32_t known = loaded.first_page * kernels::kPageTokens;
  if (found.kv_tokens < known) return;
  found.kv_tokens = known;
  PageTable pages = SharePages(found, now);
  for (const std::vector<std::byte>& bytes : loaded.pages) {
    if (!MakeRoom(shape.page_bytes, now)) return;
    std::optional<PageRef> page = memory.TakePage(Fill::kNone);
    page->CopyFrom(bytes);
    pages.Append(*std::move(page));
  }
  std::optional<SlotRef> state;
  if (has_state) {
    if (!MakeRoom(shape.state_bytes, now)) return;
    state = memory.TakeSlot(Fill::kNone);
    state->CopyFrom(loaded.state);
  }
  // A state alone may hang on KV deeper than the pages that came with it.
  const int32_t tokens = static_cast<int32_t>(loaded.tokens.size());
  if (pages.size() >= shape.PagesFor(tokens)) tree.Insert(loaded.scope, loaded.tokens, pages);
  if (tree.Find(loaded.scope, loaded.tokens).kv_tokens < tokens) return;
  Node& node = tree.NodeAt(loaded.scope, loaded.tokens, tokens);
  MarkUsed(node, now);
  if (state.has_value() && !node.checkpoint.has_value()) {
    node.checkpoint = Checkpoint{state->Share(Holder::kCached), CheckpointKind::kEnd};
  }
}

// What leads to `node`, and its state, to the tiers.
bool CacheManager::Impl::Write(const Node& node, const TimeNs now) {
  if (store.empty()) return true;
  std::vector<const Node*> path;
  for (const Node* n = &node; !n->is_root(); n = n->parent) {
    if (!n->has_kv()) return true;
    path.push_back(n);
  }
  std::reverse(path.begin(), path.end());
  std::vector<TokenId> tokens;
  for (const Node* const n : path) tokens.insert(tokens.end(), n->tokens.begin(), n->tokens.end());
  StoredImage image{.tokens = tokens, .pages = {}, .state = {}};
  for (const PageRef* const page : PagesAlong(path, node.end)) image.pages.push_back(page->bytes());
  if (node.checkpoint.has_value()) image.state = node.checkpoint->state.bytes();
  return store.Write(RadixTree::ScopeOf(node), image, now);
}

void CacheManager::Persist(const Clock& clock, const TimeNs deadline) {
  if (impl_->store.empty()) return;
  std::vector<const Node*> nodes;
  impl_->tree.ForEach([&](const Scope&, const Node& node) {
    if (impl_->has_state ? node.checkpoint.has_value() : node.is_leaf()) nodes.push_back(&node);
  });
  // A tier gives the oldest up first, so what is worth most goes last.
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Node* const a, const Node* const b) { return a->use.used_at < b->use.used_at; });
  const auto wait = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return clock.Now() < deadline;
  };
  for (const Node* const node : nodes) {
    while (!impl_->Write(*node, clock.Now())) {
      if (impl_->store.writing_bytes() == 0 || !wait()) break;
    }
  }
  while (impl_->store.writing_bytes() > 0 && wait()) {
  }
}

// --- Numbers ---

const CacheMemory& CacheManager::memory() const { return impl_->memory; }

PlacementReport CacheManager::Report() const {
  PlacementReport report = impl_->report;
  report.checkpoints_evicted = impl_->evictor.counts().checkpoints;
  report.pages_evicted = impl_->evictor.counts().pages;
  report.eviction_passes = impl_->evictor.counts().passes;
  report.nodes = impl_->tree.node_count();
  report.checkpoints = impl_->memory.slots().cached_count();
  report.budget_bytes = impl_->memory.budget_bytes();
  for (const auto& [name, stats] : impl_->store.Stats()) {
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
  report.tier_loads = impl_->store.counts().loads;
  report.tier_loads_failed = impl_->store.counts().loads_failed;
  report.tier_loads_too_dear = impl_->store.counts().loads_too_dear;
  report.tier_loaded_tokens = impl_->store.counts().loaded_tokens;
  report.live_bytes = impl_->memory.live_bytes();
  report.cached_bytes = impl_->memory.used_bytes() - impl_->memory.live_bytes();
  report.checkpoint_price_tokens = impl_->PriceTokens();
  report.eviction_order = impl_->order_names[impl_->score.winner()];
  return report;
}

int64_t CacheManager::DeadKvBytes() const { return impl_->evictor.DeadKvBytes(); }

void CacheManager::CheckIntegrity() const {
  impl_->memory.CheckIntegrity();
  impl_->tree.CheckIntegrity();
}

}  // namespace invar::cache
