// StepLoop: everything the engine thread owns, and the step that works on it. RunOneStep reads: take the mail, end what
// must end, draft, plan and move memory (admission.h), forward (runner.h), read the logits (row_reader.h), publish.
// Threads: engine thread only, but what is set at construction and the inbox, which is for all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/cache_manager.h"
#include "engine/engine_options.h"
#include "engine/loop/admission.h"
#include "engine/loop/bind_model.h"
#include "engine/loop/draft_share.h"
#include "engine/loop/inbox.h"
#include "engine/loop/live_sequences.h"
#include "engine/loop/remote_tokens.h"
#include "engine/loop/residents.h"
#include "engine/loop/rounds.h"
#include "engine/loop/row_reader.h"
#include "engine/loop/runner.h"
#include "engine/loop/sequence.h"
#include "engine/schedule/step.h"
#include "engine/speculate/speculator.h"
#include "engine/stats.h"
#include "engine/transfer/inbound_prefixes.h"
#include "engine/validate.h"
#include "kernels/sample.h"
#include "models/model.h"
#include "models/text.h"

namespace invar::engine {

class StepLoop {
 public:
  // As Engine::Create. `plan`: of PlanMemory. `slow`: null where there is no slow tier.
  StepLoop(const EngineOptions& options, std::unique_ptr<models::Model> model, const models::Tokenizer* tokenizer,
           const Clock& clock, const MemoryPlan& plan, std::vector<std::unique_ptr<cache::Tier>> tiers,
           std::unique_ptr<SlowStore> slow, PrefixSource* prefixes);

  // One step; false: there was nothing to do.
  bool RunOneStep();
  // Nanoseconds until time alone changes something: a deadline, a stalled reader's grace.
  TimeNs NextWake() const;

  Inbox& inbox() { return inbox_; }
  cache::CacheManager& cache() { return cache_; }
  const Admission& admission() const { return admission_; }
  const models::ModelSpec& spec() const { return runner_.model().spec(); }
  const RequestLimits& request_limits() const { return request_limits_; }
  // Of a layer's page; nullopt: no view can stand for the model's KV.
  const std::optional<kernels::PageShape>& view_shape() const { return view_shape_; }
  int32_t step_tokens() const { return live_.step_tokens(); }
  const std::string& why_nothing_is_reused() const { return why_nothing_is_reused_; }

  // Recounts everything, the cache's whole tree too.
  void CheckIntegrity() const;

 private:
  void CheckNothingIsHeld() const;
  bool TakeArrivals();
  void EndWhatMustEnd(const Mail& mail);
  void Draft();
  void RunSpans(const Step& step);
  void MakeViewReady(Sequence& sequence);
  bool EndStream(Sequence& sequence);
  bool OnlyAwayRun() const;
  void Emit(SpanWork& work, int32_t first, int32_t rows);
  void Settle(Sequence& sequence, End end);
  void LearnRate(int64_t prefilled, TimeNs took);
  void PublishStats();
  int64_t KvBytes(const Sequence& sequence) const;

  // Set at construction.
  const EngineOptions options_;
  const Clock& clock_;
  const models::Tokenizer* const tokenizer_;
  const cache::StateShape shape_;
  const MemoryPlan memory_plan_;
  const std::optional<kernels::PageShape> view_shape_;
  const std::string why_nothing_is_reused_;
  const RequestLimits request_limits_;

  Inbox inbox_;  // Any thread. Before the cache, whose tiers wake it.

  // Engine thread only. The cache stands before what holds its memory.
  EngineStats stats_;
  cache::CacheManager cache_;
  Runner runner_;
  InboundPrefixes inbound_;
  const kernels::RowSampler rows_;
  cache::CacheMemory draft_memory_;  // Before the drafters, who hold it.
  DraftShare draft_share_;
  Speculator speculator_;
  std::unique_ptr<SlowTier> slow_tier_;  // Before the sequences, whose KV lies in it.
  LiveSequences live_;
  Admission admission_;
  Rounds rounds_;
  Residents residents_;
  RowReader reader_;
  RemoteTokens remote_tokens_;
  double prefill_rate_ = 0;  // Tokens a second of the last larger steps; 0: none yet.
  // Of the step under way, kept for their memory.
  std::vector<SpeculatedSequence*> decoding_;
  std::vector<SpanWork> batch_;
  std::vector<const Sequence*> ran_;  // Of the batch, as
  std::vector<End> ends_;             // these.
  std::vector<cache::StateEmission> emissions_;
};

}  // namespace invar::engine
