// What happens at a boundary: make or settle, then what is held goes and what is needed is taken.
#include "engine/compressed/served_view.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/state_shape.h"

namespace invar::engine {
namespace {

// What a view must save to serve, in pages: one for the tail's growth up to the next boundary, one for roundings.
constexpr int64_t kLeastSavedPages = 2;
// Until it does, it is tried again when the text is longer by a share: so all trying together costs a few times as much
// as the last try.
constexpr int32_t kRetryShare = 4;

}  // namespace

ServedView::ServedView(const models::Model& model, const Request::Approximation& wish, const int32_t prompt_tokens)
    : spec_(model.spec()),
      compressor_(cache::MakeCompressor(wish.compressor).value()),
      first_(prompt_tokens),
      shown_(QueriesShown(compressor_->traits())),
      shown_spread_(compressor_->traits().spread_queries > 0),
      kv_(model, *compressor_, cache::Budget::ShareOrAll(wish.kv_budget)),
      log_(model.spec().attention, compressor_->traits().spread_queries),
      boundary_(first_) {}

void ServedView::MakeReady(cache::CacheManager& cache, cache::PrefixLease& lease,
                           const std::span<const TokenId> computed, const TimeNs now) {
  const auto tokens = static_cast<int32_t>(computed.size());
  Check(IsDue(tokens), "a view is brought up to date at its boundaries", tokens, boundary_);
  const PageRows pages{.arena = cache.memory().pages().arena(), .pages = lease.pages().ids()};
  if (serves()) {
    kv_.TakeTail(pages, tokens - kv_.tokens());
    kv_.Settle(&log_);
  } else {
    kv_.Make(pages, tokens, &log_);
    const int64_t body_pages = (kv_.body_bytes() + spec_.page_bytes - 1) / spec_.page_bytes;
    const int64_t needed = body_pages + cache::StateShape::PagesFor(kv_.tail_slots());
    // By tokens, not by what the lease holds: that depends on what the cache had.
    if (needed + kLeastSavedPages > cache::StateShape::PagesFor(tokens)) {
      kv_.Clear();
      boundary_ = tokens + std::max(CompressedKv::kUpkeepTokens, tokens / kRetryShare);
      return;
    }
  }
  Replace(cache, lease, computed, now);
  boundary_ = tokens + CompressedKv::kUpkeepTokens;
}

// What it holds goes before the bodies take its place in the budget, so that both need not fit there at once.
void ServedView::Replace(cache::CacheManager& cache, cache::PrefixLease& lease, const std::span<const TokenId> computed,
                         const TimeNs now) {
  cache.GiveUpPages(lease, computed, lease.pages().size(), now);
  claim_.reset();
  claim_ = cache.Reserve(kv_.body_bytes(), now);
  cache.Extend(lease, kv_.tail_slots(), now);
  kv_.WriteTail(0, {cache.memory().pages().arena(), lease.pages().ids()});
}

// Spans follow each other, and the log begins with one that runs before the first boundary: so at every boundary it has
// the same queries, however the prompt was cut and whatever of it came from the cache.
models::QueryObserver* ServedView::ObserverOf(const int32_t first, const int32_t end) {
  if (!IsShownQueries(compressor_->traits()) || end <= runs_from()) return nullptr;
  if (logged_ != first || first == 0) log_.Restart(first);
  logged_ = end;
  if (!shown_spread_) log_.Trim(first - shown_);
  return &log_;
}

std::span<const models::ViewLayer> ServedView::At(const Position first) {
  if (!serves()) return {};
  return kv_.At(first);
}

void ServedView::Forget() {
  claim_.reset();
  kv_.Clear();
  boundary_ = first_;
  log_.Restart(0);
  logged_ = 0;
}

}  // namespace invar::engine
