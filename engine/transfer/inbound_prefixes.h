// InboundPrefixes: prefixes on their way from another instance to the cache. A request that waits for one has a ticket;
// what comes is taken up between two steps, whole or not at all, and a ticket ends in time whatever its source does.
// What comes in codes is made a prefix of here first, a part between two steps, and cached under its own provenance.
// Threads: engine thread only; the source calls back on its own threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "cache/cache_manager.h"
#include "cache/prefix_query.h"
#include "engine/engine_options.h"
#include "engine/prefix_source.h"
#include "engine/remote_run.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "engine/transfer/scd_rebuild.h"
#include "models/model.h"

namespace invar::engine {

// What a run here would meet.
struct LocalLoad {
  double tokens_per_second = 0;  // 0: not known yet.
  int64_t tokens_ahead = 0;      // Of prompts that are being run.
};

class InboundPrefixes {
 public:
  // `source` may be null: nothing ever comes. `rows_max`: of one forward of the model. `usable_ids`: as the
  // engine samples. `wake`: something has come;
  // called on threads of the source. Requires: all outlive this, but for `wake`, which is not called any more when the
  // destructor has returned.
  InboundPrefixes(const TransferOptions& options, PrefixSource* source, cache::CacheManager& cache,
                  models::Model& model, int64_t rows_max, const Clock& clock, int32_t usable_ids,
                  std::function<void()> wake);
  ~InboundPrefixes();

  // Where what is cached for `request` reaches furthest: under the provenance of exact KV, or, where it allows codes,
  // under that of one of the profile's points.
  std::string BestProvenance(const cache::PrefixQuery& query, const Request& request) const;

  // What a provenance is, for whoever gets the answer: point, profile and every layer's plan; of exact KV, empty.
  std::string WordsOf(const std::string& provenance) const;

  // Asks for what memory lacks of `query`, where the request allows it and it is enough to be worth it. Nullopt: there
  // is nothing to wait for; otherwise Take names the ticket within the timeout.
  std::optional<int64_t> Begin(const cache::PrefixQuery& query, const Request& request, const LocalLoad& load);
  // The request does not wait any more; nothing of it is taken up from here on.
  void Cancel(int64_t ticket);

  // Where tokens of a ticket's request come in meanwhile; null: nowhere.
  RemoteRun* RunOf(int64_t ticket) const;
  // Counts a token of a run, and whether it is its first.
  void CountRemote(const bool is_first) {
    stats_.remote_runs += is_first ? 1 : 0;
    ++stats_.remote_tokens;
  }
  // A view came to draft on; so many tokens were drafted on one, and so many of them were right.
  void CountView() { ++stats_.remote_views; }
  void CountDraft(const int64_t drafted, const int64_t right) {
    stats_.remote_drafted += drafted;
    stats_.remote_accepted += right;
  }

  // What became of a ticket. `end`: the first so many tokens need not be run now, of which `before` need not anyway.
  struct Landed {
    int64_t ticket = 0;
    int32_t before = 0;
    int32_t end = 0;    // 0: nothing came.
    int64_t bytes = 0;  // That crossed the link, used or not.
    std::string mode = {};
    std::string provenance = {};  // That it is cached under.
    std::string plan = {};        // What was weighed.
  };
  // Also goes on with what is being made of codes, by one part of each.
  std::vector<Landed> Take();
  bool is_rebuilding() const { return rebuilding_ > 0; }
  // When Take is due at the latest though nothing has come; kNever.
  TimeNs next_deadline() const;

  TransferStats stats() const {
    TransferStats stats = stats_;
    stats.under_way = static_cast<int64_t>(waiting_.size());
    return stats;
  }

 private:
  // With the source's threads. Shared: who still fetches may outlive the engine.
  struct Mailbox {
    Mutex mu;
    std::function<void()> wake GUARDED_BY(mu);  // Empty: closed.
    std::vector<std::pair<int64_t, FetchedPrefix>> mail GUARDED_BY(mu);
  };
  struct Waiting {
    cache::Scope scope;
    std::vector<TokenId> tokens;
    int32_t before = 0;
    TimeNs since = 0;
    TimeNs deadline = kNever;
    int64_t flushes = 0;  // Of its tenant's, when it began.
    std::shared_ptr<RemoteRun> run = {};
    // From here on for what came in codes.
    std::unique_ptr<ScdRebuild> rebuild = {};
    std::shared_ptr<const HeldProfile> held = {};
    size_t point = 0;
    int64_t bytes = 0;
    std::string plan = {};
    double expected_s = 0;  // Of the rebuild, by operations alone.
    TimeNs took = 0;
  };
  // Null: it is not run elsewhere.
  std::shared_ptr<RemoteRun> MakeRun(const cache::Scope& scope, const Request& request) const;
  TransferProblem ProblemOf(const PrefixWant& want, const LocalLoad& load) const;
  // Of a rebuild, if its operations ran as fast as those of a prefill. 0: not known.
  double ExpectedSeconds(size_t point, int32_t tokens, double tokens_per_second) const;
  // Whether it waits on: its codes are made a prefix of now.
  bool BeginRebuild(Waiting& waiting, FetchedPrefix& fetched);
  // One part; what it ended with, nullopt: it goes on.
  std::optional<FetchedPrefix> GoOn(Waiting& waiting);
  Landed Land(int64_t ticket, const Waiting& waiting, FetchedPrefix fetched, TimeNs now);

  // Set at construction.
  const TransferOptions options_;
  PrefixSource* const source_;
  cache::CacheManager& cache_;
  models::Model& model_;
  const int64_t rows_max_;
  const Clock& clock_;
  const int32_t usable_ids_;
  const std::shared_ptr<Mailbox> mailbox_;

  std::map<int64_t, Waiting> waiting_;  // By ticket.
  int64_t rebuilding_ = 0;              // Of these.
  // How much longer rebuilds take than their operations say. Decoders run on one thread without vectors of our own; a
  // first one corrects it.
  double rebuild_factor_ = 4.0;
  double prefill_rate_ = 0;  // Last told.
  int64_t last_ticket_ = 0;
  TransferStats stats_;
};

}  // namespace invar::engine
