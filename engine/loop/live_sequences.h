// LiveSequences: the requests that are alive, and every move of their memory: admission, preemption, the end. Who moves
// when is decided elsewhere; here it is done, counted and charged to its tenant.
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "cache/cache_manager.h"
#include "engine/loop/inbox.h"
#include "engine/loop/sequence.h"
#include "engine/schedule/tenant_shares.h"
#include "engine/speculate/speculator.h"
#include "engine/stats.h"
#include "engine/transfer/inbound_prefixes.h"
#include "models/model.h"
#include "models/text.h"

namespace invar::engine {

class LiveSequences {
 public:
  using Map = std::map<SequenceId, std::unique_ptr<Sequence>>;  // Ordered by id, which is the order of arrival.

  // `step_tokens`: of one sequence in one step at most. Requires: all outlive this. Effects: every move is counted in
  // `stats`.
  LiveSequences(const int32_t step_tokens, models::Model& model, cache::CacheManager& cache, InboundPrefixes& inbound,
                Speculator& speculator, const Clock& clock, EngineStats& stats)
      : step_tokens_(step_tokens),
        model_(model),
        cache_(cache),
        inbound_(inbound),
        speculator_(speculator),
        clock_(clock),
        stats_(stats) {}

  int32_t step_tokens() const { return step_tokens_; }

  Map::const_iterator begin() const { return live_.begin(); }
  Map::const_iterator end() const { return live_.end(); }
  size_t size() const { return live_.size(); }
  bool empty() const { return live_.empty(); }
  // Null where it has ended.
  Sequence* FindOrNull(SequenceId id);
  // Requires: it lives.
  Sequence& Find(SequenceId id);

  // `tokenizer` may be null.
  void Add(Submission submission, int32_t output_limit, const models::Tokenizer* tokenizer);
  // Requires: what the scheduler promised, so that there is memory for it.
  void Admit(Sequence& sequence, const cache::PrefixQuery& query);
  void Preempt(Sequence& sequence);
  // What has run of a prefix that is given away, as it is or in codes, and has not gone out yet goes out.
  void Export(Sequence& sequence);
  // The sequence is gone after either. `kv_bytes`: what its full KV takes at the end. `counter`: of `stats`.
  void Finish(Sequence& sequence, int64_t kv_bytes);
  void Fail(Sequence& sequence, Status status, int64_t& counter);

  // Admissions and preemptions so far.
  int64_t moves() const { return moves_; }
  // Who was served how much; of tenants with live requests.
  const TenantShares& shares() const { return shares_; }
  void Charge(const Sequence& sequence, const int64_t tokens) { shares_.Charge(sequence.request().tenant, tokens); }

  void CheckIntegrity() const;

 private:
  std::optional<ViewReport> ReportView(const Sequence& sequence) const;

  // Set at construction.
  const int32_t step_tokens_;
  models::Model& model_;
  cache::CacheManager& cache_;
  InboundPrefixes& inbound_;
  Speculator& speculator_;
  const Clock& clock_;
  EngineStats& stats_;

  Map live_;
  TenantShares shares_;
  int64_t moves_ = 0;
};

}  // namespace invar::engine
