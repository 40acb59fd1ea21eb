// From who is alive to a step: the order of asking, taking and planning.
#include "engine/loop/admission.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/numerics.h"

namespace invar::engine {
namespace {

cache::Scope ScopeOf(const Request& request, const std::string& provenance) {
  return {.tenant = request.tenant, .salt = request.cache.salt, .provenance = provenance};
}

}  // namespace

// Where a sequence is admitted, what it need not run becomes known only then: so spans are planned after. And tiers and
// other instances are asked before anybody is preempted for it: a request that waits for one stands aside.
Step Admission::PlanAndAdmit(const double prefill_rate) {
  if (live_.empty()) return {};
  Step step;
  do {
    TakeSnapshot();
    LookUpNext();
    step = Plan(snapshot_, limits_);
  } while (AskElsewhere(step.admit, prefill_rate));
  for (const SequenceId id : step.preempt) live_.Preempt(live_.Find(id));
  if (step.admit.empty()) return step;
  for (const SequenceId id : step.admit) {
    Sequence& sequence = live_.Find(id);
    live_.Admit(sequence, QueryOf(sequence));
  }
  TakeSnapshot();
  snapshot_.waiting.clear();
  step = Plan(snapshot_, limits_);
  for (const SequenceId id : step.preempt) live_.Preempt(live_.Find(id));
  return step;
}

MemoryNeed Admission::Need() {
  TakeSnapshot();
  LookUpNext();
  return {.free_pages = snapshot_.free_pages, .wanted = FindPagesWanted(snapshot_, limits_)};
}

int32_t Admission::pages() const { return memory_plan_.PagesBeside(share_.drafters_bytes()); }

void Admission::TakeSnapshot() {
  snapshot_.running.clear();
  snapshot_.waiting.clear();
  snapshot_.tenant_served.clear();
  tenants_.clear();
  const int64_t page_bytes = std::max<int64_t>(1, cache_.memory().pages().block_bytes());
  snapshot_.free_pages = pages() - cache_.memory().pages().live_count();
  snapshot_.free_slots = memory_plan_.slots - cache_.memory().slots().live_count();
  const TimeNs now = clock_.Now();
  for (const auto& [id, sequence] : live_) {
    SequenceView view{.id = id,
                      .tenant = TenantIndex(sequence->request().tenant),
                      .priority = sequence->request().priority,
                      .arrival = id.value(),
                      .paused = sequence->paused() || sequence->awaits_prefix(),
                      .stands_aside = sequence->stands_aside(),
                      .yields = sequence->paused() && now - *sequence->paused_since() >= kPauseGraceNs,
                      .computed = sequence->computed(),
                      .total = static_cast<int32_t>(sequence->tokens().size()),
                      .logits_from = sequence->logits_from(),
                      .saved_tokens = sequence->saved_tokens(),
                      .pages = sequence->pages(),
                      .own_pages = sequence->own_pages(cache_.memory().pages()),
                      .shared_pages = sequence->pages() - sequence->own_pages(cache_.memory().pages()),
                      .drafted = static_cast<int32_t>(sequence->draft().size())};
    if (sequence->pages_max() != INT32_MAX && sequence->state() != SequenceState::kDecode) {
      view.pages_max = sequence->pages_max();
      view.span_end = view.saved_tokens + view.pages_max * kernels::kPageTokens;
    }
    if (const LiveExport* const live = sequence->live_export(); live != nullptr) {
      view.span_end = live->SpanEnd(view.computed);
    }
    if (const ServedView* const served = sequence->view(); served != nullptr && sequence->running()) {
      view.span_end = served->SpanEnd(view.computed);
      view.spare_pages = served->SparePages(view.computed);
      view.parts = served->Parts(view.computed);
      const auto body_pages = static_cast<int32_t>((served->bytes() + page_bytes - 1) / page_bytes);
      snapshot_.free_pages -= body_pages;
      view.own_pages += body_pages;
    }
    (sequence->running() ? snapshot_.running : snapshot_.waiting).push_back(view);
  }
  const auto running = static_cast<int32_t>(snapshot_.running.size());
  snapshot_.free_slots = std::min(snapshot_.free_slots, std::max(0, running_max_ - running));
}

// Only of the one whose turn it is: a look into the tree a step.
void Admission::LookUpNext() {
  const std::optional<size_t> next = NextWaiting(snapshot_);
  if (!next.has_value()) return;
  SequenceView& view = snapshot_.waiting[*next];
  view.shared_pages = cache_.LiveSharedPages(QueryOf(live_.Find(view.id)));
}

// Few tenants have live requests at once, so a search beats a map.
int32_t Admission::TenantIndex(const std::string& tenant) {
  const auto found = std::find(tenants_.begin(), tenants_.end(), tenant);
  if (found != tenants_.end()) return static_cast<int32_t>(found - tenants_.begin());
  tenants_.push_back(tenant);
  snapshot_.tenant_served.push_back(live_.shares().Served(tenant));
  return static_cast<int32_t>(tenants_.size()) - 1;
}

// Asks the tiers once for what memory lacks of each, when its turn has come: so what is read is soon used; and for what
// they lack too, another instance. True: one of them waits now.
bool Admission::AskElsewhere(const std::vector<SequenceId>& admitted, const double prefill_rate) {
  bool waits = false;
  for (const SequenceId id : admitted) {
    Sequence& sequence = live_.Find(id);
    if (!sequence.asked_tiers()) {
      sequence.SetProvenance(inbound_.BestProvenance(QueryOf(sequence), sequence.request()));
      sequence.AskedTiers(cache_.Prefetch(QueryOf(sequence), prefill_rate, clock_.Now()));
    }
    if (!sequence.awaits_prefix() && !sequence.asked_peers()) {
      sequence.AskedPeers(inbound_.Begin(QueryOf(sequence), sequence.request(), LoadOf(prefill_rate)));
    }
    waits = waits || sequence.awaits_prefix();
  }
  return waits;
}

// Of the last snapshot: prompts that are being run go first.
LocalLoad Admission::LoadOf(const double prefill_rate) const {
  LocalLoad load{.tokens_per_second = prefill_rate};
  for (const SequenceView& view : snapshot_.running) {
    if (view.total - view.computed > 1 && !view.paused) load.tokens_ahead += view.total - view.computed;
  }
  return load;
}

cache::PrefixQuery Admission::QueryOf(const Sequence& sequence) const {
  cache::PrefixQuery query = KnownOf(sequence);
  query.entry = sequence.entry();
  return query;
}

// Of an approximate one only what was run on full KV may come from the cache; of one that moves out as it goes, what it
// has pages for.
cache::PrefixQuery Admission::KnownOf(const Sequence& sequence) const {
  const ServedView* const view = sequence.view();
  const auto known = static_cast<int32_t>(sequence.tokens().size());
  if (view == nullptr) {
    const int64_t held = int64_t{sequence.pages_max()} * kernels::kPageTokens;
    const auto tokens = std::span(sequence.tokens()).first(static_cast<size_t>(std::min<int64_t>(known, held)));
    const auto seen = static_cast<int32_t>(tokens.size());
    return QueryOf(sequence.request(), sequence.provenance(), tokens, std::min(sequence.prompt_tokens(), seen),
                   std::min(sequence.logits_from(), seen - 1));
  }
  const std::span<const TokenId> exact =
      std::span(sequence.tokens()).first(std::min(known, view->first_boundary() + 1));
  return QueryOf(sequence.request(), sequence.provenance(), exact, sequence.prompt_tokens(),
                 std::min({sequence.logits_from(), view->runs_from(), static_cast<int32_t>(exact.size()) - 1}));
}

cache::PrefixQuery Admission::QueryOf(const Request& request, const std::string& provenance,
                                      const std::span<const TokenId> tokens, const int32_t prompt_tokens,
                                      const int32_t resume_limit) const {
  return {.scope = ScopeOf(request, provenance),
          .tokens = tokens,
          .prompt_tokens = prompt_tokens,
          .stable_tokens = std::min(request.cache.stable_tokens, prompt_tokens),
          .resume_limit = resume_limit,
          .read = reuses_ && !request.cache.bypass_read,
          .write = reuses_ && !request.cache.bypass_write,
          .hints = request.cache.hints};
}

}  // namespace invar::engine
