// The lease calls over tree, memory and evictor.
#include "cache/prefix/prefix_cache.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "base/check.h"

namespace invar::cache {
namespace {

// A sequence that decodes is published so often: the walk is per token, the use of it is rare.
constexpr int32_t kPublishEvery = kernels::kPageTokens;

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

// Where a state is a large part of the budget, a small share would hold one: the next prompt's plan would push it out
// before anybody could come back to it (bench/results/2026-11-30-placements-qwen3.5-100m.md).
constexpr int64_t kProbationStates = 8;
constexpr int64_t kProbationPart = 4;  // But no more than this part of the budget for that, and one state in any case.

int64_t ProbationBytes(const CacheOptions& options) {
  const double share = options.tuning.probation_share;
  if (share <= 0) return 0;  // Nothing is planned.
  const int64_t state = options.shape.state_bytes;
  const int64_t least = std::max(state, std::min(kProbationStates * state, options.budget_bytes / kProbationPart));
  return std::max(least, static_cast<int64_t>(share * static_cast<double>(options.budget_bytes)));
}

std::vector<std::byte> BytesOf(const std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

PrefixCache::PrefixCache(const CacheOptions& options, const EvictionOrder& order, PlanExecutor& executor,
                         EvictionListener* const listener)
    : shape_(options.shape),
      has_state_(options.shape.state_bytes > 0),
      probation_bytes_(ProbationBytes(options)),
      memory_(options.shape, options.budget_bytes + options.shared_bytes, options.slots_without_bytes, options.backing),
      placer_({.placement = options.tuning.placement,
               .places = options.tuning.planned_checkpoints_max,
               .learns = options.plans && has_state_ && probation_bytes_ > 0,
               .clock = options.clock},
              tree_, executor),
      evictor_(tree_, memory_, demand_, listener, has_state_),
      order_(&order) {}

// --- Begin ---

int32_t PrefixCache::LiveSharedPages(const PrefixQuery& query) const {
  if (!query.read) return 0;
  const Match found = tree_.Find(query.scope, query.tokens);
  const int32_t whole = found.kv_tokens / kernels::kPageTokens * kernels::kPageTokens;
  int32_t live = 0;
  for (const PageRef* const page : PagesAlong(found.nodes, whole)) {
    live += memory_.pages().LiveClaims(page->id()) > 0 ? 1 : 0;
  }
  return live;
}

PrefixLease PrefixCache::Acquire(const PrefixQuery& query, const TimeNs now) {
  const int32_t tokens = static_cast<int32_t>(query.tokens.size());
  Check(query.resume_limit < tokens, "a token is left to run", query.resume_limit, tokens);
  Match found;
  if (query.read) found = tree_.Find(query.scope, query.tokens);
  for (Node* const node : found.nodes) node->use.used_at = now;
  const int32_t matched = found.tokens;
  const int32_t turns = TurnsBefore(found);
  const std::optional<ClassKey> key = placer_.ClassOf(query, found);
  if (query.read && query.entry == nullptr) placer_.ObserveOverlap(found);
  // Nothing of nodes without KV is claimed below, so making room may end them.
  while (!found.nodes.empty() && found.nodes.back()->begin >= found.kv_tokens) found.nodes.pop_back();
  // Making room for a copy of its last page must not cost the state it resumes from: a prefix that has just come from a
  // tier is what nobody has asked for yet, and would go first.
  std::optional<SlotRef> held;
  if (const ResumePoint wanted = Resume(found, query.resume_limit, has_state_); wanted.from != nullptr) {
    held = wanted.from->checkpoint->state.Share(Holder::kLive);
  }
  PageTable pages = SharePages(found, now);
  const ResumePoint point = Resume(found, query.resume_limit, has_state_);
  held.reset();
  PrefixLease lease(query.scope, SlotWith(point, now));
  lease.pages_ = std::move(pages);
  lease.match_ = point.match;
  lease.publishes_ = query.write && placer_.traits().keeps_kv;
  if (query.entry != nullptr) {
    lease.entry_ = *query.entry;
  } else {
    lease.entry_ = {
        .met_at = matched, .stable_at = StableEnd(query), .private_from = matched, .turns = turns, .places = {}};
    if (LeavesCheckpoints(query)) {
      lease.entry_.places = placer_.PlacesFor(query, point.match, key, matched, PriceTokens());
    }
  }
  if (point.from != nullptr) MeetPlanned(*point.from, now);
  if (query.read) {
    ++report_.queries;
    report_.queried_tokens += tokens;
    report_.kv_match_tokens += point.match.kv_tokens;
    report_.state_match_tokens += point.match.state_tokens;
    report_.recomputed_tokens += std::max(0, point.match.kv_tokens - point.match.state_tokens);
  }
  return lease;
}

// Claims on the pages of `found`. Others read the shared part of the last one while this sequence goes on in it, so it
// gets a copy; where the budget has no room for that, what is found ends with the page before.
PageTable PrefixCache::SharePages(Match& found, const TimeNs now) {
  PageTable pages;
  for (const PageRef* const page : PagesAlong(found.nodes, found.kv_tokens)) pages.Append(page->Share(Holder::kLive));
  if (found.kv_tokens % kernels::kPageTokens == 0) return pages;
  const int32_t last = pages.size() - 1;
  if (MakeRoom(shape_.page_bytes, now)) {
    std::optional<PageRef> own = memory_.TakePage(Fill::kNone);
    own->CopyFrom(pages.ref(last).bytes());
    pages.Replace(last, *std::move(own));
  } else {
    pages.RemoveLast();
    found.kv_tokens = last * kernels::kPageTokens;
  }
  return pages;
}

// The expectation that placed a checkpoint has come true.
void PrefixCache::MeetPlanned(Node& node, const TimeNs now) {
  evictor_.Promote(node);
  if (node.use.origin == UseOrigin::kPlanned) demand_.Hit(node.use, now);
}

PageRef PrefixCache::TakePage(const TimeNs now) {
  const bool room = MakeRoom(shape_.page_bytes, now);
  std::optional<PageRef> page = memory_.TakePage(Fill::kZero);
  Check(room && page.has_value(), "live sequences leave room for the pages they were planned with");
  return *std::move(page);
}

// A running slot with the state of `point`. Where the budget does not hold both, the checkpoint itself becomes it.
SlotRef PrefixCache::SlotWith(const ResumePoint& point, const TimeNs now) {
  std::optional<SlotRef> checkpoint;
  if (point.from != nullptr) checkpoint = point.from->checkpoint->state.Share(Holder::kLive);
  if (MakeRoom(shape_.state_bytes, now)) {
    std::optional<SlotRef> slot = memory_.TakeSlot(checkpoint.has_value() ? Fill::kNone : Fill::kZero);
    if (slot.has_value()) {
      if (checkpoint.has_value()) slot->CopyFrom(checkpoint->bytes());
      return *std::move(slot);
    }
  }
  Check(checkpoint.has_value(), "live sequences leave room for one more slot");
  point.from->checkpoint.reset();
  return *std::move(checkpoint);
}

// --- A span ---

void PrefixCache::Extend(PrefixLease& lease, const int32_t end, const TimeNs now) {
  while (lease.pages_.size() < shape_.PagesFor(end)) lease.pages_.Append(TakePage(now));
}

void PrefixCache::Emit(PrefixLease& lease, const int32_t first, const int32_t end, const TimeNs now,
                       std::vector<StateEmission>& out) {
  Check(lease.emissions_.empty(), "a span is committed before the next");
  const std::vector<CheckpointPlace>& places = lease.entry_.places;
  for (; lease.next_place_ < places.size() && places[lease.next_place_].at <= end; ++lease.next_place_) {
    const CheckpointPlace& place = places[lease.next_place_];
    if (place.at <= first) continue;
    std::optional<SlotRef> slot;
    if (MakeRoom(shape_.state_bytes, now)) slot = memory_.TakeSlot(Fill::kNone);
    if (!slot.has_value()) {
      ++report_.checkpoints_skipped;
      continue;
    }
    out.push_back({place.at, slot->id()});
    lease.emissions_.push_back({place.at, place.kind, *std::move(slot)});
  }
}

void PrefixCache::Commit(PrefixLease& lease, const std::span<const TokenId> computed, const TimeNs now) {
  const int32_t tokens = static_cast<int32_t>(computed.size());
  if (!lease.publishes_ || (lease.emissions_.empty() && tokens - lease.published_ < kPublishEvery)) return;
  Publish(lease, computed, now);
  // All of them first: what goes on probation pushes others off, and with them KV that no checkpoint lies on.
  std::vector<Node*> unasked;
  for (PrefixLease::Emission& emission : lease.emissions_) {
    Node* const node = Keep(lease, computed, emission.at, emission.kind, std::move(emission.state), now);
    if (node != nullptr && emission.kind == CheckpointKind::kPlanned && placer_.traits().reads_demand) {
      unasked.push_back(node);
    }
  }
  lease.emissions_.clear();
  for (Node* const node : unasked) {
    DemandModel::Begin(node->use, UseOrigin::kPlanned, now);
    evictor_.PutOnProbation(*node, probation_bytes_, now);
  }
}

void PrefixCache::Publish(PrefixLease& lease, const std::span<const TokenId> tokens, const TimeNs now) {
  Node& node = tree_.Insert(lease.scope_, tokens, lease.pages_);
  MarkUsed(node, now);
  lease.published_ = static_cast<int32_t>(tokens.size());
  UsePagesOfTheTree(lease, node);
  if (lease.entry_.met_at > 0 && lease.entry_.met_at <= lease.published_) {
    demand_.Hit(tree_.NodeAt(lease.scope_, tokens, std::exchange(lease.entry_.met_at, 0)).use, now);
  }
  if (lease.entry_.stable_at > 0 && lease.entry_.stable_at <= lease.published_) {
    const int32_t stable_at = std::exchange(lease.entry_.stable_at, 0);
    placer_.ObserveEntry(lease.scope_, tokens, lease.entry_.private_from, stable_at);
    Node& stable = tree_.NodeAt(lease.scope_, tokens, stable_at);
    DemandModel::Begin(stable.use, UseOrigin::kEnd, now, lease.entry_.turns);
  }
}

// Where another sequence was here first, its pages hold the same bits, and this one's own go. Otherwise the tree's
// would lie, cached, above a leaf that this sequence holds: neither live nor to be had by cutting leaves. Only whole
// pages: in its last one the sequence goes on writing.
void PrefixCache::UsePagesOfTheTree(PrefixLease& lease, const Node& end) {
  int32_t below = end.end / kernels::kPageTokens;  // Pages from here on are done, or a deeper node's.
  for (const Node* node = &end; !node->is_root(); node = node->parent) {
    for (int32_t p = node->first_page(); p < below; ++p) {
      const PageRef& page = node->pages[p - node->first_page()];
      if (page.id() != lease.pages_.ref(p).id()) lease.pages_.Replace(p, page.Share(Holder::kLive));
    }
    below = std::min(below, node->first_page());
  }
}

// Gives the node that has got it; null: another sequence was here, with the same bits. Requires: the tree holds
// `tokens`.
Node* PrefixCache::Keep(const PrefixLease& lease, const std::span<const TokenId> tokens, const int32_t at,
                        const CheckpointKind kind, SlotRef state, const TimeNs now) {
  Node& node = tree_.NodeAt(lease.scope_, tokens, at);
  node.use.used_at = now;
  if (node.checkpoint.has_value()) return nullptr;
  node.checkpoint = Checkpoint{state.Share(Holder::kCached), kind};
  ++report_.checkpoints_made[static_cast<size_t>(kind)];
  return &node;
}

// --- A sequence that goes on by itself ---

void PrefixCache::GiveUpPages(PrefixLease& lease, const std::span<const TokenId> computed, const int32_t pages,
                              const TimeNs now) {
  Check(lease.emissions_.empty(), "a span is committed before its pages go");
  if (lease.parted_ == 0) lease.published_before_parting_ = lease.publishes_;
  const bool shares = std::exchange(lease.publishes_, false);
  if (shares) Publish(lease, computed, now);
  lease.entry_.places.clear();
  lease.next_place_ = 0;
  lease.parted_ += pages;
  lease.pages_.RemoveFirst(pages);
  if (shares) KeepCopies(lease, now);
}

// Of what is left the tree has the beginning. Held by this sequence, it would be a leaf that cannot be cut, and what
// was given up would lie above it: neither live nor to be had.
void PrefixCache::KeepCopies(PrefixLease& lease, const TimeNs now) {
  const int32_t kept = lease.pages_.size();
  std::vector<std::vector<std::byte>> copies(static_cast<size_t>(kept));
  for (int32_t p = 0; p < kept && memory_.pages().arena() != nullptr; ++p) {
    const std::span<const std::byte> bytes = lease.pages_.ref(p).bytes();
    copies[static_cast<size_t>(p)].assign(bytes.begin(), bytes.end());
  }
  lease.pages_.Clear();
  for (const std::vector<std::byte>& copy : copies) {
    PageRef page = TakePage(now);
    page.CopyFrom(copy);
    lease.pages_.Append(std::move(page));
  }
}

std::vector<PageRef> PrefixCache::TakePages(const int32_t count, const TimeNs now) {
  std::vector<PageRef> pages;
  for (int32_t i = 0; i < count; ++i) pages.push_back(TakePage(now));
  return pages;
}

void PrefixCache::TakeBackPages(PrefixLease& lease, std::vector<PageRef> pages) {
  Check(static_cast<int32_t>(pages.size()) == lease.parted_, "all that was given up comes back", pages.size(),
        lease.parted_);
  lease.pages_.Prepend(std::move(pages));
  lease.publishes_ = lease.published_before_parting_;
  lease.parted_ = 0;
}

ByteClaim PrefixCache::Reserve(const int64_t bytes, const TimeNs now) {
  const bool room = MakeRoom(bytes, now);
  std::optional<ByteClaim> claim = memory_.Reserve(bytes);
  Check(room && claim.has_value(), "live sequences leave room for the bytes they were planned with", bytes);
  return *std::move(claim);
}

// --- End ---

void PrefixCache::Release(PrefixLease lease, const std::span<const TokenId> computed, const CheckpointKind kind,
                          const TimeNs now) {
  if (!lease.publishes_ || computed.empty()) return;
  Publish(lease, computed, now);
  if (kind == CheckpointKind::kEnd) {
    Node& end = tree_.NodeAt(lease.scope_, computed, static_cast<int32_t>(computed.size()));
    DemandModel::Begin(end.use, UseOrigin::kEnd, now, lease.entry_.turns);
  }
  if (has_state_ && (placer_.traits().at_end || kind == CheckpointKind::kPreempted)) {
    Keep(lease, computed, static_cast<int32_t>(computed.size()), kind, std::move(lease.slot_), now);
  }
}

FlushReport PrefixCache::Flush(const FlushOptions& what) {
  const auto held = [&] {
    return FlushReport{.nodes = tree_.node_count(),
                       .checkpoints = memory_.slots().cached_count(),
                       .bytes = memory_.used_bytes() - memory_.live_bytes()};
  };
  const FlushReport before = held();
  const auto covers = [&](const Scope& scope) { return what.Covers(scope); };
  if (what.part != CachedPart::kKv) evictor_.ForgetProbation(covers);
  if (what.part == CachedPart::kAll) {
    tree_.Clear(covers);
  } else if (!has_state_) {
    if (what.part == CachedPart::kKv) tree_.Clear(covers);
  } else {
    tree_.ForEach([&](const Scope& scope, Node& node) {
      if (!covers(scope)) return;
      if (what.part == CachedPart::kKv) node.pages.clear();
      if (what.part == CachedPart::kStates) node.checkpoint.reset();
    });
  }
  const FlushReport after = held();
  return {.nodes = before.nodes - after.nodes,
          .checkpoints = before.checkpoints - after.checkpoints,
          .bytes = before.bytes - after.bytes};
}

// --- From and to elsewhere ---

PrefixMatch PrefixCache::Lookup(const PrefixQuery& query) const {
  return Resume(tree_.Find(query.scope, query.tokens), query.resume_limit, has_state_).match;
}

PlanReport PrefixCache::Explain(const PrefixQuery& query) {
  Match found;
  if (query.read) found = tree_.Find(query.scope, query.tokens);
  const std::optional<ClassKey> key = placer_.ClassOf(query, found);
  PlanReport report;
  for (const Node* const node : found.nodes) {
    if (node->checkpoint.has_value() && node->end <= found.kv_tokens) {
      report.there.push_back({node->end, node->checkpoint->kind});
    }
  }
  report.match = Resume(found, query.resume_limit, has_state_).match;
  report.eviction_price_tokens = PriceTokens();
  report.basis = has_state_ ? PlanBasis::kNoWriting : PlanBasis::kNoState;
  if (!LeavesCheckpoints(query)) return report;
  placer_.Explain(query, key, found.tokens, report);
  return report;
}

bool PrefixCache::Adopt(const Scope& scope, std::span<const TokenId> tokens, const PrefixImage& image,
                        const TimeNs now) {
  tokens = tokens.first(static_cast<size_t>(image.end));
  Match found = tree_.Find(scope, tokens);
  const int32_t known = image.first_page * kernels::kPageTokens;
  if (found.kv_tokens < known) return false;
  found.kv_tokens = known;
  PageTable pages = SharePages(found, now);
  for (const std::vector<std::byte>& bytes : image.pages) {
    if (!MakeRoom(shape_.page_bytes, now)) return false;
    std::optional<PageRef> page = memory_.TakePage(Fill::kNone);
    page->CopyFrom(bytes);
    pages.Append(*std::move(page));
  }
  std::optional<SlotRef> state;
  if (has_state_) {
    if (!MakeRoom(shape_.state_bytes, now)) return false;
    state = memory_.TakeSlot(Fill::kNone);
    state->CopyFrom(image.state);
  }
  // A state alone may hang on KV deeper than the pages that came with it.
  if (pages.size() >= shape_.PagesFor(image.end)) tree_.Insert(scope, tokens, pages);
  if (tree_.Find(scope, tokens).kv_tokens < image.end) return false;
  Node& node = tree_.NodeAt(scope, tokens, image.end);
  MarkUsed(node, now);
  if (state.has_value() && !node.checkpoint.has_value()) {
    node.checkpoint = Checkpoint{state->Share(Holder::kCached), CheckpointKind::kBrought};
    ++report_.checkpoints_made[static_cast<size_t>(CheckpointKind::kBrought)];
  }
  return true;
}

std::optional<PrefixImage> PrefixCache::CopyCached(const PrefixQuery& query, const int32_t first_page,
                                                   const TimeNs now) {
  Match found = tree_.Find(query.scope, query.tokens);
  const ResumePoint point = Resume(found, query.resume_limit, has_state_);
  const int32_t end = point.match.state_tokens;
  if (end == 0) return std::nullopt;
  for (Node* const node : found.nodes) node->use.used_at = now;
  PrefixImage image{.first_page = std::min(first_page, end / kernels::kPageTokens), .end = end};
  const std::vector<const PageRef*> pages = PagesAlong(found.nodes, end);
  for (size_t page = static_cast<size_t>(image.first_page); page < pages.size(); ++page) {
    image.pages.push_back(BytesOf(pages[page]->bytes()));
  }
  if (point.from != nullptr) image.state = BytesOf(point.from->checkpoint->state.bytes());
  return image;
}

std::vector<Node*> PrefixCache::ResumableNodes() const {
  std::vector<Node*> nodes;
  std::unordered_set<const Node*> without_kv;  // Or below one without.
  tree_.ForEach([&](const Scope&, Node& node) {
    if (!node.has_kv() || without_kv.contains(node.parent)) {
      without_kv.insert(&node);
    } else if (has_state_ ? node.checkpoint.has_value() : node.is_leaf()) {
      nodes.push_back(&node);
    }
  });
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Node* const a, const Node* const b) { return a->use.used_at > b->use.used_at; });
  return nodes;
}

// --- Numbers ---

PlacementReport PrefixCache::Report() const {
  PlacementReport report = report_;
  report.checkpoints_evicted_by_kind = evictor_.counts().checkpoints;
  report.checkpoints_evicted =
      std::accumulate(report.checkpoints_evicted_by_kind.begin(), report.checkpoints_evicted_by_kind.end(), int64_t{0});
  placer_.AddTo(report);
  report.pages_evicted = evictor_.counts().pages;
  report.eviction_passes = evictor_.counts().passes;
  report.nodes = tree_.node_count();
  report.checkpoints = memory_.slots().cached_count();
  report.budget_bytes = memory_.budget_bytes();
  report.live_bytes = memory_.live_bytes();
  report.cached_bytes = memory_.used_bytes() - memory_.live_bytes();
  report.checkpoint_price_tokens = PriceTokens();
  return report;
}

void PrefixCache::CheckIntegrity() const {
  memory_.CheckIntegrity();
  tree_.CheckIntegrity();
  placer_.CheckIntegrity();
  evictor_.CheckIntegrity();
}

}  // namespace invar::cache
