// Engine: owns the model, the sequences and all their memory; one thread runs steps.
//   Submit -> inbox -> Plan (schedule/scheduler.h) -> Model::Forward -> sample -> EventSink
// Threads: any, unless a function says otherwise; all work happens on the engine thread, or inside RunOneStep for
// callers that drive the engine themselves (simulation, tests).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "cache/cache_manager.h"
#include "engine/engine_options.h"
#include "engine/prefix_source.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "engine/validate.h"
#include "models/model.h"
#include "models/text.h"

namespace invar::engine {

// What the prefix cache did and holds at one moment: report and tree agree.
struct CacheSnapshot {
  TimeNs at = 0;  // On the engine's clock.
  cache::PlacementReport report;
  cache::TreeReport tree;
};

class Engine {
 public:
  // `tiers`: slow places of the prefix cache, the fastest first.
  // Lays out all memory now. Errors: RESOURCE_EXHAUSTED where the KV budget cannot hold one sequence page;
  // INVALID_ARGUMENT of options that the model cannot have; what opening the file of the slow tier gives.
  // `tokenizer` may be null (token ids only: no text, stop strings refused). `prefixes`: where prefixes come from that
  // other instances compute; null: nowhere. Requires: `clock`, `tokenizer`, `prefixes` outlive this.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options, std::unique_ptr<models::Model> model,
                                                  const models::Tokenizer* tokenizer, const Clock& clock,
                                                  std::vector<std::unique_ptr<cache::Tier>> tiers = {},
                                                  PrefixSource* prefixes = nullptr);
  ~Engine();  // As Stop.

  // Checks the request against the model's and the engine's limits, then queues it. On success exactly one final event
  // will reach `sink`. Errors: INVALID_ARGUMENT with the field named; RESOURCE_EXHAUSTED (queue full, or the request
  // could never fit the KV budget); UNAVAILABLE (shutting down); DEADLINE_EXCEEDED (already past).
  // shared_ptr: the RPC and the engine really end independently.
  StatusOr<SequenceId> Submit(Request request, std::shared_ptr<EventSink> sink);
  // Takes effect at the next step boundary; harmless when the request has ended.
  void Cancel(SequenceId id);
  // The reader has caught up. One that never does keeps its request, not its memory, where others wait for that: ending
  // it is for its caller.
  void Unpause(SequenceId id);

  // What follows is done at the next step boundary, and `done` is called there, once, on the engine thread: it hands
  // the answer over and returns. Errors: UNAVAILABLE (stopped); `done` is never called then.

  // Forgets what the prefix cache holds. Running requests go on. What tiers hold can no longer be found from then on;
  // they give it up in their own time, which Persist waits for.
  Status FlushCache(cache::FlushOptions what, std::function<void(const cache::FlushReport&)> done = {});
  // Counters of the cache and the shape of its tree. Cost: a walk over the tree, about 100 ns a node.
  Status ReportCache(cache::TreeReportOptions options, std::function<void(CacheSnapshot)> done);
  // A copy of what the cache has of a prefix, at least so many of its tokens; nullopt: less.
  struct CachedPrefix {
    cache::Scope scope;
    std::vector<TokenId> tokens;
    int32_t tokens_min = 1;
    int32_t first_page = 0;
  };
  Status CopyCached(CachedPrefix what, std::function<void(std::optional<cache::PrefixImage>)> done);
  // A compressed view of what CopyCached gave, from its first page on, for one who drafts on it. Threads: any; it is
  // made on this one, in a pass over the KV. Requires: the wish was found valid (CheckView, ViewUse::kDrafts). Errors:
  // FAILED_PRECONDITION: no view can stand for this model's KV.
  StatusOr<PrefixView> MakeView(const cache::PrefixImage& image, const WantedView& wish) const;
  // How many tokens of it CopyCached would find, and how often its tenant's prefixes were flushed.
  Status LookUpCached(CachedPrefix what, std::function<void(int32_t tokens, int64_t flushes)> done);
  // Where `request` would leave checkpoints if it came now, and why; nothing is run. Errors: as Submit's validation.
  Status ExplainPlan(Request request, std::function<void(const cache::PlanReport&)> done);

  void StartThread();
  // One step or nothing to do: false. For simulation; not together with StartThread.
  bool RunOneStep();

  // No new requests, and ends everything that is left with UNAVAILABLE.
  void Abort();
  // Joins the engine thread after the step under way and ends everything that is left with UNAVAILABLE (no sink is
  // called after it returns). Submit gives UNAVAILABLE from then on. May be called again. Threads: one.
  void Stop();
  // Stop, then CacheManager::Persist for at most `limit`, ended early by `hurry`. Threads: one, as Stop.
  cache::PersistReport Persist(TimeNs limit, const std::stop_token& hurry = {});

  EngineStats Stats() const;  // A copy of the last published snapshot.
  const models::ModelSpec& spec() const;
  // Why no request can ever reuse what another one computed, as a sentence for the operator; empty where some can.
  const std::string& why_nothing_is_reused() const;
  // What requests are judged by. Callers without a max_tokens of their own take MaxRequestTokens less the prompt.
  const RequestLimits& request_limits() const;
  // Most prompt tokens of one sequence in one step.
  int32_t step_tokens() const;
  // Drafters that requests may name; none where it does not speculate.
  const std::vector<std::string>& drafters() const;
  // Recounts everything from scratch; stops the process on a broken invariant. Engine thread or RunOneStep callers.
  void CheckIntegrity() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar::engine
