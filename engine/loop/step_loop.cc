// Nothing here has a lock. What other threads touch has its own: the inbox, and below the cache the queues of tiers.
#include "engine/loop/step_loop.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/compressed/compressed_kv.h"
#include "kernels/numerics.h"

namespace invar::engine {
namespace {

// Steps with fewer prompt tokens, or with more rows of decode beside them, say little about the rate at which prompts
// are run.
constexpr int32_t kRateTokens = 64;
constexpr int32_t kRateDecodeShare = 8;  // One row in so many may be of decode.

RequestLimits RequestLimitsOf(const EngineOptions& options, const models::ModelSpec& spec,
                              const models::Tokenizer* const tokenizer, const MemoryPlan& plan) {
  const int32_t ids =
      tokenizer == nullptr ? spec.vocabulary_size : std::min(spec.vocabulary_size, tokenizer->vocabulary_size());
  RequestLimits limits = {
      .usable_ids = ids,
      .max_sequence_tokens = spec.max_sequence_tokens,
      .page_tokens = kernels::kPageTokens,
      .pages = plan.PagesBeside(0),
      .has_text = tokenizer != nullptr,
      .stop_strings_max = options.stop_strings_max,
      .stop_string_bytes_max = options.stop_string_bytes_max,
      .logprobs_max = options.logprobs_max,
      .draft_tokens_max = options.draft_tokens_max,
      .why_no_views = options.approximates ? WhyNoViews(spec) : "engine.approximate.allowed is false"};
  if (options.draft_tokens_max > 0) {
    for (const DrafterKind& kind : options.drafters) {
      if (kind.from_outside) continue;
      const std::string why_not = kind.why_not ? kind.why_not(spec) : std::string();
      if (why_not.empty()) {
        limits.drafters.push_back(kind.name);
        if (kind.compresses) limits.compressing_drafters.insert(kind.name);
      } else {
        limits.refused_drafters.emplace(kind.name, why_not);
      }
    }
  }
  return limits;
}

SchedulerLimits SchedulerLimitsOf(const EngineOptions& options, const models::ModelSpec& spec, const MemoryPlan& plan) {
  return {.max_batch_tokens = options.max_batch_tokens,
          .max_logits_rows = options.max_logits_rows,
          .prefill_chunk_tokens = options.prefill_chunk_tokens,
          .max_running = options.max_running,
          .page_tokens = kernels::kPageTokens,
          .max_log_rows = LogRows(spec, plan),
          .log_head_rows = LogHeadRows(spec)};
}

// That a prompt holds which moves out as it is run: a span of some, the page that it begins in, and the one that it
// ends in. Longer spans would not be faster, and streaming what lies before each takes little beside it.
int32_t WorkingPages(const EngineOptions& options) {
  constexpr int32_t kSpanTokens = 256;
  return std::min(kSpanTokens, options.prefill_chunk_tokens) / kernels::kPageTokens + 2;
}

Rounds::Options RoundOptionsOf(const EngineOptions& options, const MemoryPlan& plan) {
  Rounds::Options rounds{.synchronous = options.slow_tier.synchronous,
                         .eager = options.slow_tier.eager,
                         .limits = {.draft_max = std::max(1, options.draft_tokens_max)},
                         .rows_max = std::min(options.max_batch_tokens, options.max_logits_rows),
                         .budget_bytes = plan.budget_bytes + plan.shared_bytes,
                         .draft_memory_bytes = options.draft_memory_bytes,
                         .working_pages = WorkingPages(options)};
  if (options.slow_tier.gap_s_max > 0) rounds.limits.gap_s_max = options.slow_tier.gap_s_max;
  return rounds;
}

// Of a model that no view can stand for, none is asked for.
TransferOptions InboundOf(TransferOptions options, const std::optional<kernels::PageShape>& view_shape) {
  if (!view_shape.has_value()) options.view = {};
  return options;
}

cache::Backing BackingOf(const EngineOptions& options) {
  return options.poison_freed_memory ? cache::Backing::kPoisonedMemory : cache::Backing::kMemory;
}

}  // namespace

StepLoop::StepLoop(const EngineOptions& options, std::unique_ptr<models::Model> model,
                   const models::Tokenizer* const tokenizer, const Clock& clock, const MemoryPlan& plan,
                   std::vector<std::unique_ptr<cache::Tier>> tiers, std::unique_ptr<SlowStore> slow,
                   PrefixSource* const prefixes)
    : options_(options),
      clock_(clock),
      tokenizer_(tokenizer),
      shape_(ShapeOf(model->spec())),
      memory_plan_(plan),
      view_shape_(ViewShapeOf(*model)),
      why_nothing_is_reused_(WhyNothingIsReused(options, shape_, plan)),
      request_limits_(RequestLimitsOf(options, model->spec(), tokenizer, plan)),
      inbox_(options.max_queued),
      cache_({.shape = shape_,
              .budget_bytes = plan.budget_bytes,
              .shared_bytes = plan.shared_bytes,
              .slots_without_bytes = options.max_running,
              .backing = BackingOf(options),
              .tuning = options.cache,
              .plans_on_a_thread = options.plans_on_a_thread,
              .identity = model->spec().cache_identity(),
              .clock = &clock,
              .wake = [this] { inbox_.Wake(); }},
             std::move(tiers)),
      runner_(std::move(model), plan.log_bytes),
      inbound_(InboundOf(options.transfer, view_shape_), prefixes, cache_, runner_.model(), options.max_batch_tokens,
               clock, request_limits_.usable_ids, [this] { inbox_.Wake(); }),
      rows_(SamplerFor(runner_.model())),
      draft_memory_(shape_, options.draft_memory_bytes, /*slots_without_bytes=*/0, BackingOf(options)),
      draft_share_(plan.shared_bytes, cache_, draft_memory_),
      speculator_(options.drafters,
                  {.model = runner_.model(),
                   .memory = cache_.memory(),
                   .rows_max = std::min(options.max_batch_tokens, options.max_logits_rows),
                   .own = &draft_memory_},
                  options.draft_tokens_max, rows_, request_limits_.usable_ids, clock),
      slow_tier_(slow == nullptr
                     ? nullptr
                     : std::make_unique<SlowTier>(std::move(slow), options.slow_tier, spec(), cache_, clock)),
      live_(std::min(options.prefill_chunk_tokens, options.max_batch_tokens), runner_.model(), cache_, inbound_,
            speculator_, clock, stats_),
      admission_(SchedulerLimitsOf(options, spec(), plan), plan, options.prefix_cache, draft_share_, cache_, inbound_,
                 live_, clock),
      rounds_(slow_tier_.get(), RoundOptionsOf(options, plan), spec(), live_, speculator_, clock),
      residents_(slow_tier_.get(), options.slow_tier.eager, WorkingPages(options), draft_share_, cache_, live_,
                 speculator_, admission_, rounds_, clock),
      reader_(rows_, ChooserOf(runner_.model()), PoolOf(runner_.model()), request_limits_.usable_ids, live_,
              speculator_, clock, stats_),
      remote_tokens_({.rows_max = options.max_batch_tokens, .draft_tokens_max = options.draft_tokens_max},
                     runner_.model(), draft_memory_, live_, inbound_, speculator_, clock, stats_) {
  PublishStats();
}

bool StepLoop::RunOneStep() {
  // Tokens before prefixes: who has its prefix goes on here.
  const bool followed = remote_tokens_.Take();
  const bool arrived = TakeArrivals();
  Mail mail = inbox_.Take();
  const bool had_mail = !mail.empty();
  for (Submission& submission : mail.submissions) {
    const int32_t output_limit = OutputLimit(submission.request, request_limits_);
    live_.Add(std::move(submission), output_limit, tokenizer_);
  }
  const size_t live_before = live_.size();
  EndWhatMustEnd(mail);
  const bool ended = live_.size() != live_before;
  for (const CacheJob& job : mail.cache_jobs) job(cache_, clock_.Now());

  const int64_t moves_before = live_.moves();
  Draft();
  const bool moves = residents_.Move();
  const bool goes_on = rounds_.GoOn(OnlyAwayRun());
  const Step step = admission_.PlanAndAdmit(prefill_rate_);
  RunSpans(step);
  if (!had_mail && !followed && !arrived && !ended && !moves && !goes_on && live_.moves() == moves_before &&
      step.empty())
    return false;

  PublishStats();
  if (options_.check_integrity_every_step) CheckIntegrity();
  if (live_.empty()) CheckNothingIsHeld();
  return true;
}

TimeNs StepLoop::NextWake() const {
  TimeNs next = kNever;
  const TimeNs now = clock_.Now();
  for (const auto& [id, sequence] : live_) {
    const TimeNs deadline = sequence->request().deadline;
    if (deadline != kNever) next = std::min(next, deadline - now);
    if (!sequence->paused()) continue;
    const TimeNs paused_for = now - *sequence->paused_since();
    if (paused_for < kPauseGraceNs) next = std::min(next, kPauseGraceNs - paused_for);
  }
  const TimeNs arrival = std::min(cache_.next_arrival(), inbound_.next_deadline());
  if (arrival != kNever) next = std::min(next, arrival - now);
  return std::max<TimeNs>(0, next);
}

bool StepLoop::TakeArrivals() {
  const std::vector<cache::Arrival> arrivals = cache_.TakeArrivals(clock_.Now());
  for (const cache::Arrival& arrival : arrivals) {
    for (const auto& [id, sequence] : live_) sequence->Arrived(arrival.ticket, arrival.tier);
  }
  const std::vector<InboundPrefixes::Landed> landings = inbound_.Take();
  for (const InboundPrefixes::Landed& landed : landings) {
    for (const auto& [id, sequence] : live_) sequence->Landed(landed);
  }
  return !arrivals.empty() || !landings.empty() || inbound_.is_rebuilding();
}

void StepLoop::EndWhatMustEnd(const Mail& mail) {
  for (const SequenceId id : mail.unpauses) {
    if (Sequence* const sequence = live_.FindOrNull(id); sequence != nullptr) sequence->Unpause();
  }
  for (const SequenceId id : mail.cancels) {
    Sequence* const sequence = live_.FindOrNull(id);
    if (sequence == nullptr) continue;
    live_.Fail(*sequence, Status(StatusCode::kCancelled, "the request was cancelled"), stats_.cancelled);
  }
  const TimeNs now = clock_.Now();
  for (auto it = live_.begin(); it != live_.end();) {
    Sequence& sequence = *(it++)->second;  // Failing erases it.
    if (mail.abort) {
      live_.Fail(sequence, Unavailable("the server is shutting down"), stats_.failed);
    } else if (now >= sequence.request().deadline) {
      live_.Fail(sequence, DeadlinePassed(), stats_.expired);
    }
  }
}

// Before the plan, which gives drafts what others leave.
void StepLoop::Draft() {
  decoding_.clear();
  for (const auto& [id, sequence] : live_) {
    const bool decodes = sequence->state() == SequenceState::kDecode && !sequence->paused();
    if (decodes && sequence->away_pages() == 0) decoding_.push_back(sequence.get());
  }
  speculator_.Propose(decoding_);
}

void StepLoop::RunSpans(const Step& step) {
  stats_.last_step_tokens = 0;
  if (step.spans.empty()) return;
  const TimeNs now = clock_.Now();
  batch_.clear();
  for (const Span& span : step.spans) batch_.push_back({.sequence = &live_.Find(span.sequence), .checkpoints = {}});
  // Views give memory back, so they come before whoever takes some.
  for (const SpanWork& work : batch_) MakeViewReady(*work.sequence);
  for (size_t i = 0; i < batch_.size(); ++i) {
    Sequence& sequence = *batch_[i].sequence;
    const int32_t end = step.spans[i].first + step.spans[i].length;
    cache_.Extend(sequence.lease(), end - sequence.saved_tokens(), now);
  }
  // What is not certain may not be kept: a draft's checkpoints wait until it is verified.
  for (size_t i = 0; i < batch_.size(); ++i) {
    if (step.spans[i].drafted == 0) Emit(batch_[i], step.spans[i].first, step.spans[i].length);
  }
  const int64_t prefilled_before = stats_.prefill_tokens;
  const TimeNs begin = clock_.Now();
  const std::span<const SpanResult> results = runner_.Run(cache_.memory(), step.spans, batch_);
  ran_.clear();
  for (const SpanWork& work : batch_) ran_.push_back(work.sequence);
  reader_.Begin(results, ran_);
  runner_.Await();
  ends_.clear();
  for (size_t i = 0; i < results.size(); ++i) {
    const Outcome outcome =
        EndStream(*batch_[i].sequence) ? reader_.Read(*batch_[i].sequence, results[i]) : Outcome{0, End::kLost};
    batch_[i].certain = outcome.rows;
    ends_.push_back(outcome.end);
    if (step.spans[i].drafted > 0 && outcome.rows > 0 && outcome.end != End::kNotFinite) {
      Emit(batch_[i], step.spans[i].first, outcome.rows);
    }
  }
  runner_.Settle(cache_.memory(), batch_);
  for (size_t i = 0; i < batch_.size(); ++i) Settle(*batch_[i].sequence, ends_[i]);
  ++stats_.steps;
  const TimeNs took = clock_.Now() - begin;
  const TimeNs waited = rounds_.StepTook(step.spans, took);
  speculator_.StepTook(step.spans, took - waited);
  LearnRate(stats_.prefill_tokens - prefilled_before, took);
}

void StepLoop::MakeViewReady(Sequence& sequence) {
  ServedView* const view = sequence.view();
  if (view == nullptr || !view->IsDue(sequence.computed())) return;
  const TimeNs begin = clock_.Now();
  const bool served = view->serves();
  view->MakeReady(cache_, sequence.lease(), sequence.computed_tokens(), begin);
  stats_.views.made += !served && view->serves() ? 1 : 0;
  stats_.views.upkeeps += served ? 1 : 0;
  stats_.views.upkeep_ns += clock_.Now() - begin;
}

// Ends the round whose stream brought a sequence's KV, if there was one. False: its span did not see all of it.
bool StepLoop::EndStream(Sequence& sequence) {
  if (sequence.round().stream == nullptr) return true;
  const Status status = sequence.round().stream->status();
  sequence.round() = {};
  if (!status.ok()) residents_.Failed(status);
  return status.ok();
}

bool StepLoop::OnlyAwayRun() const {
  return std::none_of(live_.begin(), live_.end(), [](const auto& entry) {
    const Sequence& sequence = *entry.second;
    return sequence.running() && !sequence.paused() && sequence.away_pages() == 0;
  });
}

void StepLoop::Emit(SpanWork& work, const int32_t first, const int32_t rows) {
  emissions_.clear();
  cache_.Emit(work.sequence->lease(), first, first + rows, clock_.Now(), emissions_);
  for (const cache::StateEmission& e : emissions_) work.checkpoints.push_back({Position(e.after), e.to});
}

// What a step made certain is published, and who has ended leaves.
void StepLoop::Settle(Sequence& sequence, const End end) {
  if (end == End::kNotFinite) {
    live_.Fail(sequence, Internal("the model gave a logit that is not a finite number"), stats_.failed);
    return;
  }
  // Its tokens are all there; what they were computed from is computed again.
  if (end == End::kLost) return live_.Preempt(sequence);
  cache_.Commit(sequence.lease(), sequence.computed_tokens(), clock_.Now());
  live_.Export(sequence);
  if (end != End::kFinished) return;
  residents_.ComeBackAtEnd(sequence);
  live_.Finish(sequence, KvBytes(sequence));
}

void StepLoop::LearnRate(const int64_t prefilled, const TimeNs took) {
  const int64_t decoded = stats_.last_step_tokens - prefilled;
  if (prefilled < kRateTokens || decoded * kRateDecodeShare > prefilled || took <= 0) return;
  const double rate = static_cast<double>(prefilled) / ToSeconds(took);
  prefill_rate_ = prefill_rate_ == 0 ? rate : 0.8 * prefill_rate_ + 0.2 * rate;
}

void StepLoop::PublishStats() {
  stats_.prefill_rate = prefill_rate_;
  stats_.prefill_tokens_ahead = 0;
  stats_.running = stats_.waiting = stats_.paused = stats_.held = stats_.views.serving = 0;
  for (const auto& [id, sequence] : live_) {
    stats_.views.serving += sequence->view() != nullptr && sequence->view()->serves() ? 1 : 0;
    ++(sequence->running() ? stats_.running : stats_.waiting);
    const auto left = static_cast<int64_t>(sequence->tokens().size()) - sequence->computed();
    if (left > 1 && !sequence->awaits_prefix()) stats_.prefill_tokens_ahead += left;
    stats_.paused += sequence->paused() ? 1 : 0;
    stats_.held += sequence->paused() || sequence->awaits_prefix() ? 1 : 0;
  }
  stats_.pages_total = admission_.pages();
  stats_.pages_used = cache_.memory().pages().live_count();
  stats_.slots_total = memory_plan_.slots;
  stats_.slots_used = cache_.memory().slots().live_count();
  stats_.kv_bytes_used = cache_.memory().live_bytes() - draft_share_.drafters_bytes();
  stats_.views.body_bytes = cache_.memory().reserved_bytes() - draft_share_.drafters_bytes();
  stats_.cache = cache_.Report();
  stats_.transfer = inbound_.stats();
  stats_.speculation = speculator_.stats();
  stats_.slow_tier = residents_.stats();
  stats_.prefix_reuse_possible = why_nothing_is_reused_.empty();
  inbox_.Publish(stats_);
}

int64_t StepLoop::KvBytes(const Sequence& sequence) const {
  return shape_.PagesFor(sequence.computed()) * shape_.page_bytes + shape_.state_bytes;
}

// By counters alone: whoever comes next must not wait for a recount of the whole tree.
void StepLoop::CheckNothingIsHeld() const {
  live_.CheckIntegrity();
  const cache::CacheMemory& memory = cache_.memory();
  Check(memory.pages().live_count() == 0, "without requests no page is held", memory.pages().live_count());
  Check(memory.slots().live_count() == 0, "without requests no slot is held", memory.slots().live_count());
  Check(memory.reserved_bytes() == draft_share_.drafters_bytes(), "without requests no view is held",
        memory.reserved_bytes());
}

void StepLoop::CheckIntegrity() const {
  cache_.CheckIntegrity();
  live_.CheckIntegrity();
  draft_memory_.CheckIntegrity();
  Check(speculator_.stats().drafter_bytes + remote_tokens_.bytes() == draft_memory_.used_bytes(),
        "drafters hold what is taken of their memory", draft_memory_.used_bytes());
  std::set<PageId> pages;
  int32_t slots = 0;
  int64_t view_bytes = 0;
  for (const auto& [id, sequence] : live_) {
    const int32_t saved = sequence->saved_tokens();
    view_bytes += sequence->view() == nullptr ? 0 : sequence->view()->bytes();
    if (!sequence->has_lease()) continue;
    const std::span<const PageId> held = sequence->lease().pages().ids();
    Check(static_cast<int32_t>(held.size()) >= shape_.PagesFor(sequence->computed() - saved),
          "computed tokens have pages", id);
    for (const PageId page : held) Check(cache_.memory().pages().LiveClaims(page) > 0, "a held page is live", page);
    const auto own = std::count_if(held.begin(), held.end(),
                                   [&](const PageId page) { return cache_.memory().pages().LiveClaims(page) == 1; });
    Check(sequence->own_pages(cache_.memory().pages()) == own, "pages of its own are counted", id, own);
    pages.insert(held.begin(), held.end());
    ++slots;
  }
  Check(static_cast<int32_t>(pages.size()) == cache_.memory().pages().live_count(), "live pages are held",
        pages.size());
  Check(slots == cache_.memory().slots().live_count(), "live slots are held", slots);
  Check(view_bytes + draft_share_.drafters_bytes() == cache_.memory().reserved_bytes(),
        "views hold what is reserved, and drafters", view_bytes);
}

}  // namespace invar::engine
