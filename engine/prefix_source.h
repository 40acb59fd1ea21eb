// PrefixSource: where a prefix can come from that another instance computes: what a consumer wants, and what became of
// it. The engine asks before a request is admitted and waits no longer than it said; whatever comes then is taken up
// whole, or the prompt is run here. From an instance of equal weights come the bits of such a run; from one of other
// weights, where the want says by what profile, codes. No word about the wire: server/peers/transfer_client.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/prefix_image.h"
#include "cache/scope.h"
#include "engine/plan_transfer.h"
#include "engine/prefix_view.h"
#include "engine/scd_profiles.h"

namespace invar::engine {

class RemoteRun;

// Why a prefix did not come, and its prompt was run here.
enum class TransferFault {
  kUnreachable,  // No producer could be reached, or all that are there failed of late.
  kDenied,       // The producer does not know us: token or certificate.
  kRefused,      // The two differ in what they must agree in, by name.
  kBusy,         // The producer, or our way to it, has no room.
  kFailed,       // The producer could not compute it, or has stopped.
  kCut,          // The connection broke under way.
  kSilent,       // Nothing was heard of the producer for as long as the lease.
  kLate,         // It did not come in time.
  kDamaged,      // A checksum was wrong.
  kProtocol,     // What came does not follow the protocol: another epoch, order, length or range.
  kNoRoom,       // More than may be under way here, or memory could not take it up.
  kForgotten,    // What it hangs on, or all of the cache, went meanwhile.
  kSlower,       // By what was measured it is sooner run here.
};
inline constexpr size_t kTransferFaults = 13;
std::string_view NameOf(TransferFault fault);  // "unreachable": for metrics and words.

struct PrefixWant {
  std::string request_id = {};  // For logs.
  std::string producer = {};    // By name; empty: any.
  cache::Scope scope = {};
  std::vector<TokenId> tokens = {};  // All that may come from elsewhere: positions behind them are run here.
  int32_t have_kv = 0;               // Positions whose KV is here; whole pages of it need not come.
  int32_t have_state = 0;            // Tokens that need not be run here anyway: less is of no use.
  TimeNs deadline = kNever;
  // What it may come in codes by, where the producer has other weights; null: it may not.
  std::shared_ptr<const HeldProfile> profile = {};
  size_t point = 0;
  // Given: it is fetched only where that is sooner than running it, in the way that is soonest. All but producers,
  // which the source asks.
  std::optional<TransferProblem> problem = {};
  // Given: whoever is fetched from may run the request meanwhile, where its weights are equal.
  std::shared_ptr<RemoteRun> run = {};
  WantedView view = {};  // Given: a view of the prefix is wanted, in its place. Requires: nothing of it is here.
};

struct FetchedPrefix {
  std::optional<TransferFault> fault;  // Given: nothing came, and `why` says more.
  std::string why = {};
  cache::PrefixImage image = {};
  CodedPrefix coded = {};               // Held: this came, and no image.
  std::optional<PrefixView> view = {};  // Alike.
  int64_t bytes = 0;                    // Of chunks that arrived, used or not.
  std::string plan = {};                // What was weighed, in words; empty: nothing was.
};

// Threads: the engine's calls; `done` is called on any.
class PrefixSource {
 public:
  using Done = std::function<void(FetchedPrefix)>;
  virtual ~PrefixSource() = default;
  // Begins to fetch. `done` is called once, also after Cancel, and may be called before this returns; a run gets
  // nothing any more behind it.
  virtual void Fetch(int64_t ticket, PrefixWant want, Done done) = 0;
  // Nobody waits for it any more. Harmless where it has ended.
  virtual void Cancel(int64_t ticket) = 0;
};

}  // namespace invar::engine
