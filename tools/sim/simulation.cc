// The loop around the engine: arrivals, cancels, readers, one step, checks, clock. Then every answer meets its oracle.
#include "tools/sim/simulation.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "cache/tiers/stores.h"
#include "engine/engine.h"
#include "engine/validate.h"
#include "kernels/numerics.h"
#include "tools/sim/dialled_drafter.h"
#include "tools/sim/observed.h"
#include "tools/sim/oracle.h"
#include "tools/sim/random.h"
#include "tools/sim/reuse_judge.h"
#include "tools/sim/sim_tokenizer.h"
#include "tools/sim/simulated_files.h"
#include "tools/sim/simulated_peer.h"

namespace invar::sim {
namespace {

// Far above any schedule's need: 14 requests x 240 tokens at one token a step, preempted again and again.
constexpr int32_t kStepsMax = 60'000;

struct Live {
  const PlannedRequest* planned = nullptr;
  std::shared_ptr<Observed> observed;
  SequenceId id;
  bool cancel_sent = false;  // By the outside; a planted bug may still lose it.
  int32_t steps_since_cancel = 0;
};

void HashInto(uint64_t& trace, const uint64_t value) { trace = (trace ^ value) * 0x100000001B3ULL; }

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Plant plant)
      : schedule_(schedule), plant_(plant), random_(schedule.seed ^ 0xD21FE5ULL), tokenizer_(schedule.usable_ids) {
    engine::EngineOptions options = schedule.options;
    if (schedule.peer.has_value()) {
      peer_ = std::make_unique<SimulatedPeer>(*schedule.peer, schedule.model, clock_);
    }
    options.drafters.push_back({kDialledDrafter, [this](const engine::DrafterSetting&) {
                                  return MakeDialledDrafter(truths_, schedule_.usable_ids, schedule_.seed);
                                }});
    options.drafters.push_back({.name = kDialledViewDrafter,
                                .make =
                                    [this](const engine::DrafterSetting&) {
                                      return MakeDialledViewDrafter(truths_, schedule_.usable_ids, schedule_.seed);
                                    },
                                .compresses = true});
    if (schedule.slow_tier.has_value()) {
      files_ = std::make_unique<SimulatedFiles>(*schedule.slow_tier);
      options.slow_tier.files = files_.get();
    }
    auto engine =
        engine::Engine::Create(options, PlantIn(plant, models::MakeFingerprintModel(schedule.model), schedule.seed),
                               &tokenizer_, clock_, MakeTiers(), peer_.get());
    Check(engine.ok(), "the simulated engine can be made", engine.status().ToString());
    engine_ = *std::move(engine);
  }

  Outcome Run() {
    for (int32_t step = 0; step < kStepsMax && !Done(); ++step) {
      SubmitArrivals();
      SendCancels();
      SendAbort();
      SendFlushes();
      if (peer_ != nullptr) peer_->Work();
      engine_->RunOneStep();
      CheckAfterStep();
      ReadEvents();
      clock_.Advance(schedule_.step_time + (files_ == nullptr ? 0 : files_->TakeTime()));
    }
    for (const Live& live : live_) Compare(live);
    JudgeReuse();
    CheckNothingIsLeft();
    return std::move(outcome_);
  }

 private:
  static std::string Name(const Live& live) { return "request " + std::to_string(live.planned->index); }
  void Wrong(const Live& live, const std::string& problem) { outcome_.wrong.push_back(Name(live) + ": " + problem); }

  bool Done() const {
    return next_ == schedule_.requests.size() &&
           std::all_of(live_.begin(), live_.end(), [](const Live& live) { return live.observed->ended(); });
  }

  std::vector<std::unique_ptr<cache::Tier>> MakeTiers() {
    std::vector<std::unique_ptr<cache::Tier>> tiers;
    if (!schedule_.tier.has_value()) return tiers;
    tiers.push_back(
        MakeSimulatedTier(cache::MakeRamStore(schedule_.tier->budget_bytes), clock_, schedule_.tier->options));
    return tiers;
  }

  // --- The outside ---
  void SubmitArrivals() {
    for (; next_ < schedule_.requests.size() && schedule_.requests[next_].arrives_at <= clock_.Now(); ++next_) {
      const PlannedRequest& planned = schedule_.requests[next_];
      auto observed = std::make_shared<Observed>(planned, clock_);
      engine::Request request = planned.request;
      if (plant_ == Plant::kScopeIgnored) request.cache.salt.clear();
      const StatusOr<SequenceId> id = engine_->Submit(std::move(request), observed);
      if (id.ok()) {
        live_.push_back({.planned = &planned, .observed = std::move(observed), .id = *id});
        const std::string& drafter = planned.request.speculation.drafter;
        if (drafter == kDialledDrafter || drafter == kDialledViewDrafter) TellDrafter(*id, planned);
      } else {
        ++outcome_.rejected;
        JudgeRejection(planned, id.status());
      }
    }
  }

  void TellDrafter(const SequenceId id, const PlannedRequest& planned) {
    DraftTruth& truth = truths_[id];
    truth.agreement_percent = planned.agreement_percent;
    truth.tokens = planned.request.prompt;
    const Expected answer = ExpectedAnswer(planned.request, schedule_.model, tokenizer_);
    truth.tokens.insert(truth.tokens.end(), answer.tokens.begin(), answer.tokens.end());
  }

  void JudgeRejection(const PlannedRequest& planned, const Status& status) {
    const engine::Request& request = planned.request;
    const int64_t prompt = static_cast<int64_t>(request.prompt.size());
    const int64_t model_max = schedule_.model.max_sequence_tokens;
    const int64_t tokens = std::min<int64_t>(prompt + request.stopping.max_tokens, model_max);
    const engine::EngineStats stats = engine_->Stats();
    bool right = false;
    switch (status.code()) {
      case StatusCode::kResourceExhausted:
        right =
            tokens > int64_t{schedule_.pages} * kernels::kPageTokens || stats.waiting >= schedule_.options.max_queued;
        break;
      case StatusCode::kUnavailable:
        right = aborted_;
        break;
      case StatusCode::kDeadlineExceeded:
        right = clock_.Now() >= request.deadline;
        break;
      case StatusCode::kInvalidArgument:  // Else every allowed token may be a stop token.
        right = status.reason() == engine::kPromptTooLong
                    ? prompt > std::min<int64_t>(model_max, int64_t{schedule_.pages} * kernels::kPageTokens)
                    : request.stopping.min_tokens > 0 && !request.sampling.allowed_token_ids.empty();
        break;
      default:
        break;
    }
    if (right) return;
    outcome_.wrong.push_back("request " + std::to_string(planned.index) + ": refused without reason, " +
                             status.ToString());
  }

  void SendCancels() {
    for (Live& live : live_) {
      if (live.cancel_sent || !live.planned->cancel_at.has_value() || *live.planned->cancel_at > clock_.Now()) continue;
      live.cancel_sent = true;
      if (plant_ == Plant::kLostCancel && random_.Percent(20)) continue;
      engine_->Cancel(live.id);
    }
  }

  void SendAbort() {
    if (!aborted_ && schedule_.abort_at.has_value() && *schedule_.abort_at <= clock_.Now()) {
      engine_->Abort();
      aborted_ = true;
    }
  }

  void SendFlushes() {
    for (; next_flush_ < schedule_.flushes.size() && schedule_.flushes[next_flush_].at <= clock_.Now(); ++next_flush_) {
      Check(engine_->FlushCache(schedule_.flushes[next_flush_].what).ok(), "the engine runs");
      ++outcome_.flushes;
    }
  }

  void ReadEvents() {
    for (const Live& live : live_) {
      const Reader& reader = live.planned->reader;
      if (live.observed->ended() || !random_.Percent(reader.percent)) continue;
      if (reader.stalls && live.observed->started()) continue;
      if (live.observed->Read(reader.burst)) engine_->Unpause(live.id);
    }
  }

  // --- Checks ---
  void CheckAfterStep() {
    for (Live& live : live_) {
      if (live.observed->ended() || !live.cancel_sent) continue;
      if (++live.steps_since_cancel == 1)
        outcome_.stuck.push_back(Name(live) + ": alive a step after its cancellation");
    }
    const engine::EngineStats stats = engine_->Stats();
    const int64_t ended = stats.finished_stop + stats.finished_length + stats.cancelled + stats.expired + stats.failed;
    if (stats.submitted != ended + stats.running + stats.waiting || stats.pages_used > stats.pages_total ||
        stats.slots_used != stats.running || stats.kv_bytes_used != stats.cache.live_bytes ||
        stats.cache.live_bytes + stats.cache.cached_bytes > stats.cache.budget_bytes) {
      outcome_.wrong.push_back("the engine's numbers do not add up");
    }
  }

  void Compare(const Live& live) {
    const Observed& observed = *live.observed;
    for (const std::string& problem : observed.problems()) outcome_.wrong.push_back(problem);
    outcome_.tokens += static_cast<int64_t>(observed.tokens().size());
    outcome_.pauses += observed.pauses();
    const Expected expected =
        ExpectedAnswer(live.planned->request, schedule_.model, tokenizer_, plant_ == Plant::kNoisePosition ? 1 : 0);
    CompareTokens(live, expected);
    if (observed.finished().has_value()) {
      CompareFinish(live, expected);
    } else if (observed.failed().has_value()) {
      JudgeFailure(live, *observed.failed());
    } else {
      outcome_.stuck.push_back(Name(live) + ": no end");
    }
  }

  void CompareTokens(const Live& live, const Expected& expected) {
    const Observed& observed = *live.observed;
    const std::vector<TokenId>& tokens = observed.tokens();
    if (tokens.size() > expected.tokens.size() || !std::equal(tokens.begin(), tokens.end(), expected.tokens.begin())) {
      return Wrong(live, "other tokens than its prefix gives");
    }
    if (!expected.text.starts_with(observed.text())) Wrong(live, "other text than its tokens give");
    const engine::OutputParams& output = live.planned->request.output;
    const bool wants = output.logprobs.has_value() || output.logprob_bits;
    if (observed.logprobs().size() != (wants ? tokens.size() : 0)) return Wrong(live, "one log-probability a token");
    for (size_t i = 0; i < observed.logprobs().size(); ++i) {
      if (!SameBits(observed.logprobs()[i], expected.logprobs[i])) Wrong(live, "other log-probabilities");
    }
    for (const TokenId token : tokens) HashInto(outcome_.trace, static_cast<uint64_t>(token.value()) + 1);
    HashInto(outcome_.trace, static_cast<uint64_t>(live.planned->index) << 32);
  }

  static bool SameBits(const engine::TokenLogprob& a, const engine::TokenLogprob& b) {
    const auto same = [](const float x, const float y) {
      return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
    };
    if (a.token != b.token || !same(a.logit, b.logit) || !same(a.logprob, b.logprob) || a.top.size() != b.top.size()) {
      return false;
    }
    for (size_t i = 0; i < a.top.size(); ++i) {
      if (a.top[i].token != b.top[i].token || !same(a.top[i].logprob, b.top[i].logprob)) return false;
    }
    return true;
  }

  void CompareFinish(const Live& live, const Expected& expected) {
    const engine::FinishedEvent& finished = *live.observed->finished();
    outcome_.preemptions += finished.preemptions;
    ++(finished.reason == engine::FinishReason::kStop ? outcome_.finished_stop : outcome_.finished_length);
    outcome_.stop_strings += std::holds_alternative<std::string>(finished.matched) ? 1 : 0;
    if (live.observed->tokens() != expected.tokens) Wrong(live, "finished before its end");
    if (live.observed->text() != expected.text) Wrong(live, "finished with other text");
    if (finished.reason != expected.reason || finished.matched != expected.matched)
      Wrong(live, "another finish reason");
    if (finished.completion_tokens != static_cast<int32_t>(expected.tokens.size()) ||
        finished.prompt_tokens != static_cast<int32_t>(live.planned->request.prompt.size())) {
      Wrong(live, "usage does not add up");
    }
    CompareSpeculation(live, finished);
    const auto& scores = finished.prompt_logprobs;
    outcome_.scored_prompts += scores.empty() ? 0 : 1;
    if (scores.size() != expected.prompt_logprobs.size() ||
        !std::equal(scores.begin(), scores.end(), expected.prompt_logprobs.begin(), SameBits)) {
      Wrong(live, "other prompt log-probabilities");
    }
  }

  // The first token comes of the prompt's last row, every other one of a step's first row or of a row accepted.
  void CompareSpeculation(const Live& live, const engine::FinishedEvent& finished) {
    const bool asked = !live.planned->request.speculation.drafter.empty();
    if (finished.speculation.has_value() != asked) return Wrong(live, "a report of speculation where it was asked for");
    if (!asked) return;
    const engine::SpeculationReport& report = *finished.speculation;
    outcome_.accepted += report.accepted_tokens;
    if (report.accepted_tokens > report.drafted_tokens || report.rounds > report.drafted_tokens ||
        report.drafted_tokens > int64_t{report.rounds} * schedule_.options.draft_tokens_max ||
        report.accepted_tokens > std::max(0, finished.completion_tokens - 1)) {
      Wrong(live, "the report of speculation does not add up");
    }
  }

  void JudgeFailure(const Live& live, const Status& status) {
    bool right = false;
    switch (status.code()) {
      case StatusCode::kCancelled:
        right = live.cancel_sent;
        ++outcome_.cancelled;
        break;
      case StatusCode::kDeadlineExceeded:
        right = live.planned->request.deadline <= clock_.Now();
        ++outcome_.expired;
        break;
      case StatusCode::kUnavailable:
        right = aborted_;
        ++outcome_.failed;
        break;
      default:
        break;
    }
    if (!right) Wrong(live, "failed without reason, " + status.ToString());
  }

  void JudgeReuse() {
    std::vector<Begun> runs;
    for (const Live& live : live_) {
      if (live.observed->started()) runs.push_back({live.planned, live.observed.get()});
    }
    const ReuseJudge judge(schedule_, runs);
    int64_t resumed = 0;
    int64_t computed = 0;
    for (const Begun& run : runs) {
      for (const std::string& problem : judge.Problems(run)) {
        outcome_.wrong.push_back("request " + std::to_string(run.planned->index) + ": " + problem);
      }
      resumed += run.observed->reuse()->state_match_tokens;
      computed += run.observed->reuse()->computed_tokens;
      const std::string& tier = run.observed->reuse()->tier;
      outcome_.tier_hits += tier.empty() || tier == "fast" || tier == "peer" ? 0 : 1;
      outcome_.peer_hits += tier == "peer" ? 1 : 0;
      outcome_.hits += run.observed->reuse()->state_match_tokens > 0 ? 1 : 0;
    }
    const engine::EngineStats stats = engine_->Stats();
    // Every sequence that started again asked again; what it found then is not in its report.
    outcome_.resumed_after_preemption += stats.cache.state_match_tokens - resumed;
    if (stats.cache.state_match_tokens < resumed) outcome_.wrong.push_back("more resumed than counted");
    const bool all_ran = stats.preemptions == 0 && stats.cancelled + stats.expired + stats.failed == 0;
    if (all_ran && stats.prefill_tokens != computed) outcome_.wrong.push_back("more or less ran than was reported");
    outcome_.accepted_lengths = stats.speculation.accepted_lengths;
    for (const int64_t steps : stats.speculation.fallbacks) outcome_.fallbacks += steps;
    outcome_.evicted += stats.cache.checkpoints_evicted + stats.cache.pages_evicted;
  }

  // Memory that only the cache holds is no leak, but all of it must be had back.
  void CheckNothingIsLeft() {
    if (!outcome_.stuck.empty()) return;  // What is stuck holds memory by right.
    const engine::SlowTierStats slow = engine_->Stats().slow_tier;
    if (slow.used_bytes != 0 || slow.away != 0) outcome_.leaked.push_back("KV in the slow tier after the last request");
    outcome_.moved_out += slow.moved_out;
    outcome_.brought_back += slow.brought_back;
    outcome_.streams += slow.streams;
    outcome_.slow_tier_failures += slow.failures;
    outcome_.drafted_beside += slow.drafted_beside_streams;
    outcome_.file_faults += files_ == nullptr ? 0 : files_->faults();
    const engine::TransferStats transfer = engine_->Stats().transfer;
    outcome_.peer_faults += std::accumulate(transfer.faults.begin(), transfer.faults.end(), int64_t{0});
    if (transfer.under_way != 0) outcome_.leaked.push_back("a prefix that nobody waits for");
    if (transfer.begun != transfer.landed + transfer.cancelled + outcome_.peer_faults) {
      outcome_.wrong.push_back("prefixes of peers do not add up");
    }
    Check(engine_->FlushCache({}).ok(), "the engine runs");
    engine_->RunOneStep();
    clock_.Advance(schedule_.step_time * 1000);  // What tiers have under way has come or is late.
    engine_->RunOneStep();
    const engine::EngineStats stats = engine_->Stats();
    if (stats.pages_used != 0 || stats.slots_used != 0)
      outcome_.leaked.push_back("pages or slots after the last request");
    if (stats.cache.cached_bytes != 0 || stats.cache.nodes != 0 || stats.cache.checkpoints != 0)
      outcome_.leaked.push_back("cached memory that a flush does not give back");
    if (stats.running != 0 || stats.waiting != 0) outcome_.leaked.push_back("requests after the last request");
    for (const Live& live : live_) {
      if (live.observed.use_count() != 1) outcome_.leaked.push_back(Name(live) + ": its sink is still held");
    }
    engine_->CheckIntegrity();
  }

  const Schedule& schedule_;
  const Plant plant_;
  Random random_;
  SimulatedClock clock_;
  const SimTokenizer tokenizer_;
  DraftTruths truths_;                     // Before the engine, whose drafter reads it.
  std::unique_ptr<SimulatedFiles> files_;  // Null: no slow tier. Before the engine, whose KV lies there.
  std::unique_ptr<SimulatedPeer> peer_;    // Null: none. Before the engine, which asks it.
  std::unique_ptr<engine::Engine> engine_;
  size_t next_ = 0;        // Of schedule_.requests.
  size_t next_flush_ = 0;  // Of schedule_.flushes.
  std::vector<Live> live_;
  bool aborted_ = false;
  Outcome outcome_;
};

bool Fails(const Schedule& schedule, const Reduction& reduction, const Plant plant) {
  return !RunSchedule(Reduce(schedule, reduction), plant).ok();
}

}  // namespace

std::string Outcome::FirstProblem() const {
  for (const auto* const problems : {&wrong, &stuck, &leaked}) {
    if (!problems->empty()) return problems->front();
  }
  return {};
}

Outcome RunSchedule(const Schedule& schedule, const Plant plant) { return Simulation(schedule, plant).Run(); }

Reduction Minimize(const Schedule& schedule, const Plant plant) {
  Reduction best;
  best.only.emplace();
  for (const PlannedRequest& planned : schedule.requests) best.only->push_back(planned.index);
  const auto try_it = [&](Reduction smaller) {
    if (!Fails(schedule, smaller, plant)) return false;
    best = std::move(smaller);
    return true;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = 0; i < best.only->size() && best.only->size() > 1;) {
      Reduction candidate = best;
      candidate.only->erase(candidate.only->begin() + static_cast<int64_t>(i));
      if (try_it(std::move(candidate))) {
        smaller = true;
      } else {
        ++i;
      }
    }
    for (const std::string& feature : Features()) {
      if (best.without.contains(feature)) continue;
      Reduction candidate = best;
      candidate.without.insert(feature);
      smaller = try_it(std::move(candidate)) || smaller;
    }
  }
  return best;
}

}  // namespace invar::sim
