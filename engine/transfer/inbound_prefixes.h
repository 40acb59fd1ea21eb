// InboundPrefixes: prefixes on their way from another instance to the cache. A request that waits for one has a ticket;
// what comes is taken up between two steps, whole or not at all, and a ticket ends in time whatever its source does.
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
#include "engine/prefix_channel.h"
#include "engine/request.h"
#include "engine/stats.h"

namespace invar::engine {

class InboundPrefixes {
 public:
  // `source` may be null: nothing ever comes. `wake`: something has come; called on threads of the source.
  // Requires: all outlive this, but for `wake`, which is not called any more when the destructor has returned.
  InboundPrefixes(const TransferOptions& options, PrefixSource* source, cache::CacheManager& cache, const Clock& clock,
                  std::function<void()> wake);
  ~InboundPrefixes();

  // Asks for what memory lacks of `query`, where the request allows it and it is enough to be worth it. Nullopt: there
  // is nothing to wait for; otherwise Take names the ticket within the timeout.
  std::optional<int64_t> Begin(const cache::PrefixQuery& query, const Request& request);
  // The request does not wait any more; nothing of it is taken up from here on.
  void Cancel(int64_t ticket);

  // What became of a ticket. `end`: the first so many tokens need not be run now, of which `before` need not anyway.
  struct Landed {
    int64_t ticket = 0;
    int32_t before = 0;
    int32_t end = 0;    // 0: nothing came.
    int64_t bytes = 0;  // That crossed the link, used or not.
  };
  std::vector<Landed> Take();
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
    int64_t flushes = 0;  // Of the cache, when it began.
  };
  Landed Land(int64_t ticket, const Waiting& waiting, FetchedPrefix fetched, TimeNs now);

  // Set at construction.
  const TransferOptions options_;
  PrefixSource* const source_;
  cache::CacheManager& cache_;
  const Clock& clock_;
  const std::shared_ptr<Mailbox> mailbox_;

  std::map<int64_t, Waiting> waiting_;  // By ticket.
  int64_t last_ticket_ = 0;
  TransferStats stats_;
};

}  // namespace invar::engine
