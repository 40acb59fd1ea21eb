// PrefixStore: prefixes in the slow tiers. What memory gives up is written page by page and checkpoint by checkpoint
// under keys made of the tokens that lead to it; what a request lacks is looked for along its own tokens, read, checked
// and handed back to be put into the tree. Keys chain SHA-256 over pages of tokens, so one walk gives all of them:
//   chain(0) = hash(model, numerics, tenant, salt, provenance), chain(i + 1) = hash(chain(i), tokens of page i)
// A page's record hangs on the chain after it, a checkpoint's on the chain before its page and the tokens in it.
// Payloads are copied on the way out and in: memory under I/O is never memory of the budget, so the engine's promises
// to running sequences do not depend on a disk. `io_bytes_max` bounds the copies. Threads: engine thread only; `wake`
// is called from threads of the tiers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "cache/flush.h"
#include "cache/prefix_match.h"
#include "cache/scope.h"
#include "cache/state_shape.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

struct PrefixStoreOptions {
  StateShape shape;
  std::string identity;                       // Model fingerprint and numerics id: bits of another never match.
  int64_t io_bytes_max = int64_t{256} << 20;  // Copies under way, reads and writes together.
  TierDeadlines deadlines;
};

// Memory of a prefix to be written: page p at `pages[p]`, state after `tokens.size()` tokens or empty, last used at
// `used_at`.
struct StoredImage {
  std::span<const TokenId> tokens;
  std::vector<std::span<const std::byte>> pages;
  std::span<const std::byte> state;
  TimeNs used_at = 0;
};

// What a load brought: pages from `first_page` on, and the state after `tokens.size()` tokens (empty: dense models).
struct LoadedPrefix {
  int64_t ticket = 0;
  Scope scope;
  std::vector<TokenId> tokens;
  int32_t first_page = 0;
  std::vector<std::vector<std::byte>> pages;
  std::vector<std::byte> state;
  std::string_view tier;  // Of the slowest part; empty: nothing came.
};

struct PrefixStoreCounts {
  int64_t pages_written = 0, checkpoints_written = 0;
  int64_t writes_refused = 0;  // No room for the copy or in the tier's queue.
  int64_t loads = 0;           // Begun.
  int64_t loads_failed = 0;    // Brought nothing: late, missing, corrupt.
  int64_t loads_too_dear = 0;  // Running the tokens again was expected to be faster.
  int64_t loaded_tokens = 0;
};

class PrefixStore {
 public:
  // Reads the tiers' inventories. Requires: `clock` and what `wake` needs outlive this. `tiers`: fastest first.
  PrefixStore(const PrefixStoreOptions& options, std::vector<std::unique_ptr<Tier>> tiers, std::function<void()> wake);
  ~PrefixStore();

  bool empty() const { return tiers_.empty(); }

  // Copies and queues what no tier has of `image` yet. False: something was refused.
  bool Write(const Scope& scope, const StoredImage& image, TimeNs now);

  // Begins to read the deepest resume point beyond `have` that lies at most at `limit` and pays:
  // `tokens_per_second` is the rate at which tokens are run instead (0: not known, everything pays). Gives the ticket
  // that TakeLoaded will name, within the read deadline; nullopt: there is nothing to wait for.
  std::optional<int64_t> BeginLoad(const Scope& scope, std::span<const TokenId> tokens, int32_t limit,
                                   const PrefixMatch& have, double tokens_per_second, TimeNs now);
  // What has ended since the last call, failures included.
  std::vector<LoadedPrefix> TakeLoaded(TimeNs now);
  bool HasLoads() const { return !loads_.empty(); }
  // When TakeLoaded must be called for tiers that have no threads; kNever.
  TimeNs next_poll() const { return next_poll_; }

  // Forgets what was written for the scopes of tenant and salt, or (none) of all; loads of them that are under way
  // bring nothing. Of shared tiers: what is known here.
  void Drop(const FlushOptions& of, TimeNs now);
  // Writes under way.
  int64_t writing_bytes() const;
  // Writes and drops that have ended so far.
  int64_t ended() const;
  // Waits until more than `ended` have. False: `deadline` or `hurry` came first.
  bool AwaitEnd(int64_t ended, const Clock& clock, TimeNs deadline, const std::stop_token& hurry) const;
  // Records that tiers have still to forget.
  int64_t dropping() const;

  const PrefixStoreCounts& counts() const { return counts_; }
  std::vector<std::pair<std::string_view, TierStats>> Stats() const;

 private:
  struct Shared;
  struct Load;
  struct Place {
    uint32_t tiers = 0;  // Bit t: tier t has it.
    Digest space{};      // SpaceOf its scope: whose it is.
  };
  struct StateRecord {
    std::vector<TokenId> tail;  // Tokens of the page it lies in.
    TierKey key{};
    Place place;
  };
  struct Found;

  std::vector<Digest> Chain(const Scope& scope, std::span<const TokenId> tokens) const;
  static Digest SpaceOf(const std::string& tenant, const std::string& salt);
  void Learn(const TierRecord& record, size_t tier);
  void LearnDirectory(const TierRecord& record, size_t tier, const Load& load);
  StateRecord& StateIn(const TierKey& directory, std::span<const TokenId> tail, const TierKey& key,
                       const Digest& space);
  void Forget(const TierKey& key);
  void BoundIndex();
  bool IsShared(size_t tier) const { return (shared_tiers_ >> tier & 1) != 0; }
  bool Put(size_t tier, TierRecord record, const std::vector<std::span<const std::byte>>& spans, TimeNs now);
  bool WriteState(size_t tier, const StoredImage& image, const std::vector<Digest>& chain, const Digest& space,
                  TimeNs now);
  Found Search(const std::vector<Digest>& chain, std::span<const TokenId> tokens, int32_t limit,
               const PrefixMatch& have) const;
  bool Pays(const Found& found, const PrefixMatch& have, double tokens_per_second) const;
  bool BeginReads(Load& load);
  bool BeginFind(Load& load, size_t tier);
  void Read(Load& load, size_t tier, const TierKey& key, int32_t page, std::vector<std::span<std::byte>> spans);
  void PartDone(int64_t ticket, const TierKey& key, int32_t page, const Status& status);
  void EndOf(Load& load);

  // Set at construction.
  const PrefixStoreOptions options_;
  const std::vector<std::unique_ptr<Tier>> tiers_;
  const std::shared_ptr<Shared> shared_;  // With the tiers' threads.
  uint32_t shared_tiers_ = 0;             // Bit t: other instances write to tier t too, so its content is not known.

  std::map<TierKey, Place> pages_;                      // Records of whole pages.
  std::map<TierKey, std::vector<StateRecord>> states_;  // By the directory key of the chain before their page.
  std::map<int64_t, std::unique_ptr<Load>> loads_;      // By ticket.
  std::vector<LoadedPrefix> loaded_;                    // Ended and not taken yet.
  int64_t last_ticket_ = 0;
  TimeNs next_poll_ = kNever;
  PrefixStoreCounts counts_;
};

}  // namespace invar::cache
