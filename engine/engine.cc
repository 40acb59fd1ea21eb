// The step loop. RunOneStep reads: take the mail, end what must end, plan, move memory, forward, sample, publish.
// Everything below runs on the engine thread and has no lock. What other threads touch has its own: the inbox, and
// below the cache the queues of tiers.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/cache_manager.h"
#include "engine/loop/bind_model.h"
#include "engine/loop/inbox.h"
#include "engine/loop/runner.h"
#include "engine/loop/sequence.h"
#include "engine/sample/logprobs.h"
#include "engine/sample/sampler.h"
#include "engine/schedule/fair_queue.h"
#include "engine/schedule/scheduler.h"
#include "engine/speculate/speculator.h"
#include "kernels/numerics.h"

namespace invar::engine {
namespace {

// A reader that is behind for so long gives its memory up to waiting requests: above the jitter of a network, so that
// short stalls do not cost a recomputation, and far below the time after which callers end it.
constexpr TimeNs kPauseGraceNs = 1'000'000'000;

// Steps with fewer prompt tokens, or with more rows of decode beside them, say little about the rate at which prompts
// are run.
constexpr int32_t kRateTokens = 64;
constexpr int32_t kRateDecodeShare = 8;  // One row in so many may be of decode.

cache::Scope ScopeOf(const Request& request) {
  return {.tenant = request.tenant, .salt = request.cache.salt, .provenance = {}};
}

// What reading its logits did to a sequence.
enum class End { kGoesOn, kFinished, kNotFinite };
struct Outcome {
  int32_t rows = 0;  // Of the span, those whose tokens are certain.
  End end = End::kGoesOn;
};

int32_t PagesHeld(const Sequence& sequence) { return sequence.has_lease() ? sequence.lease().pages().size() : 0; }

}  // namespace

struct Engine::Impl {
  Impl(const EngineOptions& options_in, std::unique_ptr<models::Model> model,
       const models::Tokenizer* const tokenizer_in, const Clock& clock_in, const MemoryPlan& plan,
       std::vector<std::unique_ptr<cache::Tier>> tiers)
      : options(options_in),
        clock(clock_in),
        tokenizer(tokenizer_in),
        shape(ShapeOf(model->spec())),
        memory_plan(plan),
        why_nothing_is_reused(WhyNothingIsReused(options_in, shape, plan)),
        inbox(options_in.max_queued),
        cache({.shape = shape,
               .budget_bytes = plan.budget_bytes,
               .slots_without_bytes = options_in.max_running,
               .backing = options_in.poison_freed_memory ? cache::Backing::kPoisonedMemory : cache::Backing::kMemory,
               .tuning = options_in.cache,
               .plans_on_a_thread = options_in.plans_on_a_thread,
               .identity = model->spec().fingerprint + " " + model->spec().numerics_id,
               .clock = &clock_in,
               .wake = [this] { inbox.Wake(); }},
              std::move(tiers)),
        runner(std::move(model), plan.log_bytes),
        speculator(options_in.drafters, options_in.draft_tokens_max) {
    const models::ModelSpec& spec = runner.model().spec();
    const int32_t ids =
        tokenizer == nullptr ? spec.vocabulary_size : std::min(spec.vocabulary_size, tokenizer->vocabulary_size());
    request_limits = {.usable_ids = ids,
                      .max_sequence_tokens = spec.max_sequence_tokens,
                      .page_tokens = kernels::kPageTokens,
                      .pages = plan.pages,
                      .has_text = tokenizer != nullptr,
                      .stop_strings_max = options.stop_strings_max,
                      .stop_string_bytes_max = options.stop_string_bytes_max,
                      .logprobs_max = options.logprobs_max,
                      .draft_tokens_max = options.draft_tokens_max};
    if (options.draft_tokens_max > 0) {
      for (const DrafterKind& kind : options.drafters) request_limits.drafters.push_back(kind.name);
    }
    scheduler_limits = {.max_batch_tokens = options.max_batch_tokens,
                        .max_logits_rows = options.max_logits_rows,
                        .prefill_chunk_tokens = options.prefill_chunk_tokens,
                        .max_running = options.max_running,
                        .page_tokens = kernels::kPageTokens,
                        .max_log_rows = LogRows(spec, plan),
                        .log_head_rows = LogHeadRows(spec)};
    PublishStats();
  }

  bool RunOneStep();
  void ThreadMain();
  TimeNs NextWake() const;

  // --- The phases of a step ---
  bool TakeArrivals();
  void TakeSubmissions(std::vector<Submission> submissions);
  void EndWhatMustEnd(const Mail& mail);
  void Draft();
  Step PlanAndAdmit();
  void TakeSnapshot();
  void LookUpNext();
  void Preempt(Sequence& sequence);
  bool AskTiers(const std::vector<SequenceId>& admitted);
  void Admit(Sequence& sequence);
  cache::PrefixQuery QueryOf(const Sequence& sequence) const;
  cache::PrefixQuery QueryOf(const Request& request, std::span<const TokenId> tokens, int32_t prompt_tokens,
                             int32_t resume_limit) const;
  void Emit(SpanWork& work, int32_t first, int32_t rows);
  void RunSpans(const Step& step);
  void PublishStats();

  // --- One sequence ---
  Outcome Consume(Sequence& sequence, const SpanResult& result);
  Outcome SampleRows(Sequence& sequence, const SpanResult& result);
  bool ScorePrompt(Sequence& sequence, const SpanResult& result);
  End SampleNext(Sequence& sequence, std::span<const float> logits);
  void Settle(Sequence& sequence, End end);
  void FinishSequence(Sequence& sequence);
  void FailSequence(Sequence& sequence, Status status, int64_t& counter);
  Sequence& Find(SequenceId id);
  int32_t TenantIndex(const std::string& tenant);
  int64_t KvBytes(const Sequence& sequence) const;
  int32_t OwnPages(const Sequence& sequence) const;
  void CheckIntegrity() const;

  // Set at construction.
  const EngineOptions options;
  const Clock& clock;
  const models::Tokenizer* const tokenizer;
  const cache::StateShape shape;
  const MemoryPlan memory_plan;
  const std::string why_nothing_is_reused;
  RequestLimits request_limits;
  SchedulerLimits scheduler_limits;

  Inbox inbox;  // Any thread. Before the cache, whose tiers wake it.

  // Engine thread only. The cache stands before what holds its memory.
  cache::CacheManager cache;
  Runner runner;
  Speculator speculator;
  std::map<SequenceId, std::unique_ptr<Sequence>> live;  // Ordered by id, which is the order of arrival.
  TenantShares shares;
  EngineStats stats;
  Snapshot snapshot;                 // Kept between steps for its memory.
  std::vector<std::string> tenants;  // Of the snapshot, by index.
  int64_t moves = 0;                 // Admissions and preemptions so far.
  double prefill_rate = 0;  // Tokens a second of the last larger steps; 0: none yet. Decides whether tiers pay.
  std::vector<Sequence*> decoding;
  std::vector<SpanWork> batch;
  std::vector<End> ends;  // Of the batch.
  std::vector<cache::StateEmission> emissions;
  std::vector<float> scratch;  // Logits being adjusted.

  std::thread thread;
};

// --- The loop ---

bool Engine::Impl::RunOneStep() {
  const bool arrived = TakeArrivals();
  Mail mail = inbox.Take();
  const bool had_mail = !mail.empty();
  TakeSubmissions(std::move(mail.submissions));
  const size_t live_before = live.size();
  EndWhatMustEnd(mail);
  const bool ended = live.size() != live_before;
  for (const CacheJob& job : mail.cache_jobs) job(cache, clock.Now());

  const int64_t moves_before = moves;
  Draft();
  const Step step = PlanAndAdmit();
  RunSpans(step);
  if (!had_mail && !arrived && !ended && moves == moves_before && step.empty()) return false;

  PublishStats();
  if (options.check_integrity_every_step || live.empty()) CheckIntegrity();
  return true;
}

void Engine::Impl::ThreadMain() {
  while (!inbox.stopped()) {
    if (!RunOneStep()) inbox.Wait(NextWake());
  }
}

// Nanoseconds until time alone changes something: a deadline, a stalled reader's grace.
TimeNs Engine::Impl::NextWake() const {
  TimeNs next = kNever;
  const TimeNs now = clock.Now();
  for (const auto& [id, sequence] : live) {
    const TimeNs deadline = sequence->request().deadline;
    if (deadline != kNever) next = std::min(next, deadline - now);
    if (!sequence->paused()) continue;
    const TimeNs paused_for = now - *sequence->paused_since();
    if (paused_for < kPauseGraceNs) next = std::min(next, kPauseGraceNs - paused_for);
  }
  const TimeNs arrival = cache.next_arrival();
  if (arrival != kNever) next = std::min(next, arrival - now);
  return std::max<TimeNs>(0, next);
}

// --- The phases of a step ---

bool Engine::Impl::TakeArrivals() {
  const std::vector<cache::Arrival> arrivals = cache.TakeArrivals(clock.Now());
  for (const cache::Arrival& arrival : arrivals) {
    for (const auto& [id, sequence] : live) sequence->Arrived(arrival.ticket, arrival.tier);
  }
  return !arrivals.empty();
}

void Engine::Impl::TakeSubmissions(std::vector<Submission> submissions) {
  for (Submission& submission : submissions) {
    ++stats.submitted;
    shares.Arrive(submission.request.tenant);
    const int32_t output_limit = OutputLimit(submission.request, request_limits);
    live.emplace(submission.id,
                 std::make_unique<Sequence>(submission.id, std::move(submission.request), std::move(submission.sink),
                                            output_limit, tokenizer, submission.at));
  }
}

void Engine::Impl::EndWhatMustEnd(const Mail& mail) {
  for (const SequenceId id : mail.resumes) {
    if (const auto found = live.find(id); found != live.end()) found->second->Resume();
  }
  for (const SequenceId id : mail.cancels) {
    const auto found = live.find(id);
    if (found == live.end()) continue;
    FailSequence(*found->second, Status(StatusCode::kCancelled, "the request was cancelled"), stats.cancelled);
  }
  const TimeNs now = clock.Now();
  for (auto it = live.begin(); it != live.end();) {
    Sequence& sequence = *(it++)->second;  // Failing erases it.
    if (mail.abort) {
      FailSequence(sequence, Unavailable("the server is shutting down"), stats.failed);
    } else if (now >= sequence.request().deadline) {
      FailSequence(sequence, Status(StatusCode::kDeadlineExceeded, "the request's deadline has passed"), stats.expired);
    }
  }
}

void Engine::Impl::TakeSnapshot() {
  snapshot.running.clear();
  snapshot.waiting.clear();
  snapshot.tenant_served.clear();
  tenants.clear();
  snapshot.free_pages = memory_plan.pages - cache.memory().pages().live_count();
  snapshot.free_slots = memory_plan.slots - cache.memory().slots().live_count();
  const TimeNs now = clock.Now();
  for (const auto& [id, sequence] : live) {
    const SequenceView view{.id = id,
                            .tenant = TenantIndex(sequence->request().tenant),
                            .priority = sequence->request().priority,
                            .arrival = id.value(),
                            .paused = sequence->paused() || sequence->awaits_tier(),
                            .yields = sequence->paused() && now - *sequence->paused_since() >= kPauseGraceNs,
                            .computed = sequence->computed(),
                            .total = static_cast<int32_t>(sequence->tokens().size()),
                            .logits_from = sequence->logits_from(),
                            .pages = PagesHeld(*sequence),
                            .own_pages = OwnPages(*sequence),
                            .drafted = static_cast<int32_t>(sequence->draft().size())};
    (sequence->running() ? snapshot.running : snapshot.waiting).push_back(view);
  }
}

// Only of the one whose turn it is: a look into the tree a step.
void Engine::Impl::LookUpNext() {
  const std::optional<size_t> next = NextWaiting(snapshot);
  if (!next.has_value()) return;
  SequenceView& view = snapshot.waiting[*next];
  view.shared_pages = cache.LiveSharedPages(QueryOf(Find(view.id)));
}

// Few tenants have live requests at once, so a search beats a map.
int32_t Engine::Impl::TenantIndex(const std::string& tenant) {
  const auto found = std::find(tenants.begin(), tenants.end(), tenant);
  if (found != tenants.end()) return static_cast<int32_t>(found - tenants.begin());
  tenants.push_back(tenant);
  snapshot.tenant_served.push_back(shares.Served(tenant));
  return static_cast<int32_t>(tenants.size()) - 1;
}

// Before the plan, which gives drafts what others leave.
void Engine::Impl::Draft() {
  decoding.clear();
  for (const auto& [id, sequence] : live) {
    if (sequence->state() == SequenceState::kDecode && !sequence->paused()) decoding.push_back(sequence.get());
  }
  speculator.Propose(decoding);
}

// Where a sequence is admitted, what it need not run becomes known only then: so spans are planned after. And tiers are
// asked before anybody is preempted for it: a request that waits for one stands aside.
Step Engine::Impl::PlanAndAdmit() {
  if (live.empty()) return {};
  Step step;
  do {
    TakeSnapshot();
    LookUpNext();
    step = Plan(snapshot, scheduler_limits);
  } while (AskTiers(step.admit));
  for (const SequenceId id : step.preempt) Preempt(Find(id));
  if (step.admit.empty()) return step;
  for (const SequenceId id : step.admit) Admit(Find(id));
  TakeSnapshot();
  snapshot.waiting.clear();
  step = Plan(snapshot, scheduler_limits);
  for (const SequenceId id : step.preempt) Preempt(Find(id));
  return step;
}

// What it has computed stays in the cache while memory allows: it goes on from there, or runs again what was evicted.
void Engine::Impl::Preempt(Sequence& sequence) {
  stats.preemptions_in_prefill += sequence.state() == SequenceState::kPrefill ? 1 : 0;
  ++stats.preemptions;
  ++moves;
  cache::PrefixLease lease = sequence.Preempt();
  cache.Release(std::move(lease), sequence.computed_tokens(), cache::CheckpointKind::kPreempted, clock.Now());
  sequence.ForgetComputed();
}

// Asks the tiers once for what memory lacks of each, when its turn has come: so what is read is soon used. True: one of
// them waits now.
bool Engine::Impl::AskTiers(const std::vector<SequenceId>& admitted) {
  bool waits = false;
  for (const SequenceId id : admitted) {
    Sequence& sequence = Find(id);
    if (sequence.asked_tiers()) continue;
    const std::optional<int64_t> ticket = cache.Prefetch(QueryOf(sequence), prefill_rate, clock.Now());
    sequence.AskedTiers(ticket);
    waits = waits || ticket.has_value();
  }
  return waits;
}

void Engine::Impl::Admit(Sequence& sequence) {
  ++moves;
  const Request& request = sequence.request();
  if (sequence.preemptions() == 0) {
    stats.prompt_tokens += sequence.prompt_tokens();
    shares.Charge(request.tenant, sequence.prompt_tokens());
  }
  sequence.Admit(cache.Acquire(QueryOf(sequence), clock.Now()), clock.Now());
}

cache::PrefixQuery Engine::Impl::QueryOf(const Sequence& sequence) const {
  return QueryOf(sequence.request(), sequence.tokens(), sequence.prompt_tokens(), sequence.logits_from());
}

cache::PrefixQuery Engine::Impl::QueryOf(const Request& request, const std::span<const TokenId> tokens,
                                         const int32_t prompt_tokens, const int32_t resume_limit) const {
  return {.scope = ScopeOf(request),
          .tokens = tokens,
          .prompt_tokens = prompt_tokens,
          .stable_tokens = request.cache.stable_tokens,
          .resume_limit = resume_limit,
          .read = options.prefix_cache && !request.cache.bypass_read,
          .write = options.prefix_cache && !request.cache.bypass_write,
          .hints = request.cache.hints};
}

void Engine::Impl::Emit(SpanWork& work, const int32_t first, const int32_t rows) {
  emissions.clear();
  cache.Emit(work.sequence->lease(), first, first + rows, clock.Now(), emissions);
  for (const cache::StateEmission& e : emissions) work.checkpoints.push_back({Position(e.after), e.to});
}

void Engine::Impl::RunSpans(const Step& step) {
  stats.last_step_tokens = 0;
  if (step.spans.empty()) return;
  const TimeNs now = clock.Now();
  batch.clear();
  for (const Span& span : step.spans) {
    batch.push_back({.sequence = &Find(span.sequence), .checkpoints = {}});
    cache.Extend(batch.back().sequence->lease(), span.first + span.length, now);
  }
  // What is not certain may not be kept: a draft's checkpoints wait until it is verified.
  for (size_t i = 0; i < batch.size(); ++i) {
    if (step.spans[i].drafted == 0) Emit(batch[i], step.spans[i].first, step.spans[i].length);
  }
  const int64_t prefilled_before = stats.prefill_tokens;
  const TimeNs begin = clock.Now();
  const std::span<const SpanResult> results = runner.Run(cache.memory(), step.spans, batch);
  ends.clear();
  for (size_t i = 0; i < results.size(); ++i) {
    const Outcome outcome = Consume(*batch[i].sequence, results[i]);
    batch[i].certain = outcome.rows;
    ends.push_back(outcome.end);
    if (step.spans[i].drafted > 0 && outcome.end != End::kNotFinite) Emit(batch[i], step.spans[i].first, outcome.rows);
  }
  runner.Settle(cache.memory(), batch);
  for (size_t i = 0; i < batch.size(); ++i) Settle(*batch[i].sequence, ends[i]);
  ++stats.steps;
  stats.last_step_ns = clock.Now();
  const TimeNs took = stats.last_step_ns - begin;
  speculator.StepTook(step.spans, took);
  const int64_t prefilled = stats.prefill_tokens - prefilled_before;
  const int64_t decoded = stats.last_step_tokens - prefilled;
  if (prefilled >= kRateTokens && decoded * kRateDecodeShare <= prefilled && took > 0) {
    const double rate = static_cast<double>(prefilled) / ToSeconds(took);
    prefill_rate = prefill_rate == 0 ? rate : 0.8 * prefill_rate + 0.2 * rate;
  }
}

void Engine::Impl::PublishStats() {
  stats.running = stats.waiting = stats.paused = 0;
  for (const auto& [id, sequence] : live) {
    ++(sequence->running() ? stats.running : stats.waiting);
    stats.paused += sequence->paused() ? 1 : 0;
  }
  stats.pages_total = memory_plan.pages;
  stats.pages_used = cache.memory().pages().live_count();
  stats.slots_total = memory_plan.slots;
  stats.slots_used = cache.memory().slots().live_count();
  stats.kv_bytes_used = cache.memory().live_bytes();
  stats.cache = cache.Report();
  stats.speculation = speculator.stats();
  stats.prefix_reuse_possible = why_nothing_is_reused.empty();
  inbox.Publish(stats);
}

// --- One sequence ---

Sequence& Engine::Impl::Find(const SequenceId id) {
  const auto found = live.find(id);
  Check(found != live.end(), "a planned sequence is alive", id);
  return *found->second;
}

int64_t Engine::Impl::KvBytes(const Sequence& sequence) const {
  return shape.PagesFor(sequence.computed()) * shape.page_bytes + shape.state_bytes;
}

// Pages no other sequence holds.
int32_t Engine::Impl::OwnPages(const Sequence& sequence) const {
  if (!sequence.has_lease()) return 0;
  const std::span<const PageId> pages = sequence.lease().pages().ids();
  return static_cast<int32_t>(std::count_if(
      pages.begin(), pages.end(), [&](const PageId page) { return cache.memory().pages().LiveClaims(page) == 1; }));
}

Outcome Engine::Impl::Consume(Sequence& sequence, const SpanResult& result) {
  const Span& span = result.span;
  stats.prefill_tokens += std::clamp(sequence.prompt_tokens() - span.first, 0, span.length);
  stats.last_step_tokens += span.length;
  const int32_t known = span.length - span.drafted;
  if (!ScorePrompt(sequence, result)) return {known, End::kNotFinite};
  sequence.Advance(known);
  if (sequence.state() != SequenceState::kDecode) return {known, End::kGoesOn};
  if (sequence.output_left() == 0) return {known, End::kFinished};
  return SampleRows(sequence, result);
}

// Row after row with the sequence's true state, as decoding does: the next row counts only where the token sampled from
// this one is the one it was computed with. Speculation is lossless by this loop, whatever the drafter says.
Outcome Engine::Impl::SampleRows(Sequence& sequence, const SpanResult& result) {
  const Span& span = result.span;
  Outcome outcome{.rows = span.length - span.drafted};
  const auto first = static_cast<int64_t>(result.logits.rows) - 1 - span.drafted;
  int32_t right = 0;
  bool refuted = false;
  for (;;) {
    outcome.end = SampleNext(sequence, {result.logits.row(first + right), static_cast<size_t>(result.logits.cols)});
    if (outcome.end == End::kNotFinite || right == span.drafted) break;
    refuted = sequence.tokens().back() != sequence.draft()[static_cast<size_t>(right)];
    if (refuted) break;
    ++right;
    if (outcome.end != End::kGoesOn || sequence.paused()) break;
    sequence.Advance(1);
    ++outcome.rows;
  }
  speculator.Verified(sequence, span, right, refuted, outcome.rows);
  sequence.DropDraft();
  return outcome;
}

// What a step made certain is published, and who has ended leaves.
void Engine::Impl::Settle(Sequence& sequence, const End end) {
  if (end == End::kNotFinite) {
    FailSequence(sequence, Internal("the model gave a logit that is not a finite number"), stats.failed);
    return;
  }
  cache.Commit(sequence.lease(), sequence.computed_tokens(), clock.Now());
  if (end == End::kFinished) FinishSequence(sequence);
}

// The rows of a prompt's positions score the token after each. False: not finite.
bool Engine::Impl::ScorePrompt(Sequence& sequence, const SpanResult& result) {
  const std::optional<int32_t> alternatives = sequence.request().output.prompt_logprobs;
  if (!alternatives.has_value()) return true;
  const int32_t first_row = result.span.first + result.span.length - result.span.logits_rows;
  for (int32_t r = 0; r < result.span.logits_rows && first_row + r + 1 < sequence.prompt_tokens(); ++r) {
    if (first_row + r < sequence.logits_from()) continue;
    std::optional<TokenLogprob> logprob = MakeLogprob({result.logits.row(r), static_cast<size_t>(result.logits.cols)},
                                                      sequence.tokens()[first_row + r + 1], *alternatives);
    if (!logprob.has_value()) return false;
    sequence.AddPromptLogprob(*std::move(logprob));
  }
  return true;
}

End Engine::Impl::SampleNext(Sequence& sequence, const std::span<const float> logits) {
  const Request& request = sequence.request();
  const std::optional<TokenId> token =
      SampleToken({.logits = logits,
                   .sampling = request.sampling,
                   .stopping = request.stopping,
                   .counts = sequence.counts(),
                   .output_tokens = sequence.output_tokens(),
                   .position = Position(static_cast<int32_t>(sequence.tokens().size())),
                   .usable_ids = request_limits.usable_ids},
                  scratch);
  std::optional<TokenLogprob> logprob;
  const bool wants_logprob = request.output.logprobs.has_value() || request.output.logprob_bits;
  if (token.has_value() && wants_logprob) logprob = MakeLogprob(logits, *token, request.output.logprobs.value_or(0));
  if (!token.has_value() || (wants_logprob && !logprob.has_value())) return End::kNotFinite;
  ++stats.generated_tokens;
  if (sequence.output_tokens() == 0) ++stats.first_tokens;
  shares.Charge(request.tenant, 1);
  return sequence.Accept(*token, std::move(logprob), clock.Now()) ? End::kFinished : End::kGoesOn;
}

void Engine::Impl::FinishSequence(Sequence& sequence) {
  const int64_t kv_bytes = KvBytes(sequence);
  cache.Release(sequence.TakeLease(), sequence.computed_tokens(), cache::CheckpointKind::kEnd, clock.Now());
  sequence.Finish(kv_bytes, speculator.End(sequence), clock.Now());
  ++(sequence.finish_reason() == FinishReason::kStop ? stats.finished_stop : stats.finished_length);
  shares.Leave(sequence.request().tenant);
  live.erase(sequence.id());
}

// What a cancelled request has computed is right, and its caller may well come back with it.
void Engine::Impl::FailSequence(Sequence& sequence, Status status, int64_t& counter) {
  if (sequence.has_lease() && status.code() != StatusCode::kInternal) {
    cache.Release(sequence.TakeLease(), sequence.computed_tokens(), cache::CheckpointKind::kEnd, clock.Now());
  }
  speculator.End(sequence);
  sequence.Fail(std::move(status));
  ++counter;
  shares.Leave(sequence.request().tenant);
  live.erase(sequence.id());
}

void Engine::Impl::CheckIntegrity() const {
  cache.CheckIntegrity();
  std::set<PageId> pages;
  int32_t slots = 0;
  for (const auto& [id, sequence] : live) {
    Check(sequence->state() != SequenceState::kEnded, "an ended sequence is gone", id);
    Check(sequence->has_lease() == sequence->running(), "running sequences hold memory, others do not", id);
    Check(sequence->computed() < static_cast<int32_t>(sequence->tokens().size()), "a live sequence has work left", id);
    if (!sequence->has_lease()) continue;
    const std::span<const PageId> held = sequence->lease().pages().ids();
    Check(static_cast<int32_t>(held.size()) >= shape.PagesFor(sequence->computed()), "computed tokens have pages", id);
    for (const PageId page : held) Check(cache.memory().pages().LiveClaims(page) > 0, "a held page is live", page);
    pages.insert(held.begin(), held.end());
    ++slots;
  }
  Check(static_cast<int32_t>(pages.size()) == cache.memory().pages().live_count(), "live pages are held", pages.size());
  Check(slots == cache.memory().slots().live_count(), "live slots are held", slots);
  Check(shares.empty() == live.empty(), "tenants are live as long as their requests");
  const int64_t ended = stats.finished_stop + stats.finished_length + stats.cancelled + stats.expired + stats.failed;
  Check(stats.submitted == ended + static_cast<int64_t>(live.size()), "every request is counted once", stats.submitted);
}

// --- The face ---

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, std::unique_ptr<models::Model> model,
                                                 const models::Tokenizer* const tokenizer, const Clock& clock,
                                                 std::vector<std::unique_ptr<cache::Tier>> tiers) {
  if (options.max_batch_tokens < 1 || options.max_logits_rows < 1 || options.max_running < 1 ||
      options.prefill_chunk_tokens < 1 || options.max_queued < 1) {
    return InvalidArgument(
        "max_batch_tokens, max_logits_rows, max_running, prefill_chunk_tokens and max_queued must be "
        "at least 1");
  }
  StatusOr<MemoryPlan> plan = PlanMemory(model->spec(), options);
  if (!plan.ok()) return plan.status();
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(options, std::move(model), tokenizer, clock, *plan, std::move(tiers))));
}

Engine::~Engine() { Stop(); }

void Engine::Stop() {
  impl_->inbox.Stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->inbox.Abort();
  impl_->RunOneStep();
}

cache::PersistReport Engine::Persist(const TimeNs limit, const std::stop_token& hurry) {
  Stop();
  return impl_->cache.Persist(impl_->clock, impl_->clock.Now() + limit, hurry);
}

StatusOr<SequenceId> Engine::Submit(Request request, std::shared_ptr<EventSink> sink) {
  if (Status s = ValidateRequest(request, impl_->request_limits); !s.ok()) return s;
  const TimeNs now = impl_->clock.Now();
  if (now >= request.deadline) return Status(StatusCode::kDeadlineExceeded, "the request's deadline has passed");
  return impl_->inbox.Submit(std::move(request), std::move(sink), now);
}

void Engine::Cancel(const SequenceId id) { impl_->inbox.Cancel(id); }
void Engine::Resume(const SequenceId id) { impl_->inbox.Resume(id); }

Status Engine::FlushCache(cache::FlushOptions what, std::function<void(const cache::FlushReport&)> done) {
  return impl_->inbox.Post([what = std::move(what), done = std::move(done)](cache::CacheManager& cache, TimeNs now) {
    const cache::FlushReport freed = cache.Flush(what, now);
    if (done) done(freed);
  });
}

Status Engine::ReportCache(cache::TreeReportOptions options, std::function<void(CacheSnapshot)> done) {
  return impl_->inbox.Post(
      [options = std::move(options), done = std::move(done)](cache::CacheManager& cache, const TimeNs now) {
        done({.at = now, .report = cache.Report(), .tree = cache.ReportTree(options, now)});
      });
}

Status Engine::ExplainPlan(Request request, std::function<void(const cache::PlanReport&)> done) {
  if (Status s = ValidateRequest(request, impl_->request_limits); !s.ok()) return s;
  return impl_->inbox.Post(
      [impl = impl_.get(), request = std::move(request), done = std::move(done)](cache::CacheManager& cache, TimeNs) {
        const auto tokens = static_cast<int32_t>(request.prompt.size());
        done(cache.ExplainPlan(impl->QueryOf(request, request.prompt, tokens, tokens - 1)));
      });
}

void Engine::StartThread() {
  Check(!impl_->thread.joinable(), "the engine thread is started once");
  impl_->thread = std::thread([impl = impl_.get()] { impl->ThreadMain(); });
}

bool Engine::RunOneStep() {
  Check(!impl_->thread.joinable(), "only one driver runs steps");
  return impl_->RunOneStep();
}

void Engine::BeginDrain() { impl_->inbox.BeginDrain(); }
bool Engine::Drained() const { return impl_->inbox.Drained(); }
void Engine::Abort() { impl_->inbox.Abort(); }
EngineStats Engine::Stats() const { return impl_->inbox.Stats(); }
const models::ModelSpec& Engine::spec() const { return impl_->runner.model().spec(); }
const std::string& Engine::why_nothing_is_reused() const { return impl_->why_nothing_is_reused; }
const std::vector<std::string>& Engine::drafters() const { return impl_->request_limits.drafters; }
void Engine::CheckIntegrity() const { impl_->CheckIntegrity(); }

const RequestLimits& Engine::request_limits() const { return impl_->request_limits; }

}  // namespace invar::engine
