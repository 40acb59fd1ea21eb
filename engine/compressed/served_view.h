// ServedView: the compressed KV that one APPROXIMATE request decodes on. Its prompt runs on full KV like everybody's,
// so what that leaves in the cache is exact. At the first boundary where it saves memory the view takes the place of
// the full KV; at each one after that, what came since is settled into it.
//
//   positions   0 .. prompt               full KV; others may share it
//               prompt, and on            boundaries: spans end there, and MakeReady comes before the next one
//
// Boundaries and what happens at them depend on tokens alone: a row has the same bits however steps are cut, whoever
// runs beside it, and after a preemption, which takes the view and all behind the prompt away.
// Threads: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/cache_manager.h"
#include "cache/compressor.h"
#include "engine/compressed/compressed_kv.h"
#include "engine/compressed/query_log.h"
#include "engine/request.h"
#include "models/model.h"

namespace invar::engine {

class ServedView {
 public:
  // Requires: `wish` was found valid (engine/validate.h); `model` outlives this.
  ServedView(const models::Model& model, const Request::Approximation& wish, int32_t prompt_tokens);

  // Where full KV ends to be all that the sequence has, at the earliest.
  int32_t first_boundary() const { return first_; }
  // All from here on must run: the compressor is to be shown their queries.
  int32_t runs_from() const { return shown_spread_ ? 0 : std::max(0, first_ - shown_); }
  // Whether the sequence runs on it. If so, only positions behind it take places in its pages.
  bool serves() const { return claim_.has_value(); }
  // Positions that take no places in the sequence's pages.
  int32_t saved_tokens() const { return serves() ? kv_.tokens() - kv_.tail_slots() : 0; }
  int64_t bytes() const { return serves() ? claim_->bytes() : 0; }
  const std::string& compressor() const { return compressor_->provenance(); }

  // Whether MakeReady comes before position `computed` is run.
  bool IsDue(const int32_t computed) const { return computed == boundary_; }
  // The last position that a span from `computed` on may run up to.
  int32_t SpanEnd(const int32_t computed) const {
    return IsDue(computed) ? computed + CompressedKv::kUpkeepTokens : boundary_;
  }
  // Pages that MakeReady may take beyond what it gives back: at the first time as many as the sequence shares.
  bool Parts(const int32_t computed) const { return IsDue(computed) && !serves(); }
  int32_t SparePages(const int32_t computed) const { return IsDue(computed) && serves() ? 1 : 0; }

  // Brings the view up to `computed.size()` tokens, all that are computed. Effects: the sequence's pages go where the
  // view takes their place; what remains are those of its tail. Requires: it is due, and what
  // SparePages and Parts say is free.
  void MakeReady(cache::CacheManager& cache, cache::PrefixLease& lease, std::span<const TokenId> computed, TimeNs now);
  // Told of the queries of a span that ends before `end`, where the compressor is to be shown them; else null.
  models::QueryObserver* ObserverOf(int32_t first, int32_t end);
  // What a span that begins at `first` reads; empty where the sequence runs on full KV.
  std::span<const models::ViewLayer> At(Position first);
  // The sequence has lost its memory.
  void Forget();

 private:
  void Replace(cache::CacheManager& cache, cache::PrefixLease& lease, std::span<const TokenId> computed, TimeNs now);

  // Set at construction.
  const models::ModelSpec& spec_;
  const std::unique_ptr<cache::Compressor> compressor_;
  const int32_t first_;
  const int32_t shown_;      // Latest queries that the compressor is shown.
  const bool shown_spread_;  // It is shown queries of all tokens.

  CompressedKv kv_;
  QueryLog log_;
  int32_t logged_ = 0;                     // The end of what the log has; 0: nothing.
  int32_t boundary_;                       // The next one.
  std::optional<cache::ByteClaim> claim_;  // Of the bodies, where it serves.
};

}  // namespace invar::engine
