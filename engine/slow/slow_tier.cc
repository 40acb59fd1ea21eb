// Moves of slow_tier.h.
#include "engine/slow/slow_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "kernels/numerics.h"

namespace invar::engine {

SlowTier::SlowTier(std::unique_ptr<SlowStore> store, const SlowTierOptions& options, const models::ModelSpec& spec,
                   cache::CacheManager& cache, const Clock& clock)
    : store_(std::move(store)),
      staging_bytes_(options.staging_bytes),
      step_bytes_(options.step_bytes),
      parts_(spec),
      cache_(cache),
      clock_(clock),
      streams_(clock, options.reads_on_a_thread) {}

// Whole pages never change again, so they may be written in several steps, and be read meanwhile.
bool SlowTier::Write(AwayKv& away, const cache::PrefixLease& lease, const int32_t computed) {
  const int32_t whole = computed / kernels::kPageTokens;
  const auto step_pages = static_cast<int32_t>(std::max<int64_t>(1, step_bytes_ / parts_.page_bytes));
  const int32_t end = std::min(whole, away.written() + step_pages);
  const std::span<const PageId> held = lease.pages().ids();
  std::vector<const std::byte*> pages;
  for (int32_t p = away.written(); p < end; ++p) {
    const PageId page = held[static_cast<size_t>(p - away.pages())];
    pages.push_back(cache_.memory().pages().arena() + page.value() * parts_.page_bytes);
  }
  if (pages.empty()) return true;
  const int32_t before = away.written();
  const TimeNs begin = clock_.Now();
  const Status appended = away.Append(pages);
  stats_.write_ns += clock_.Now() - begin;
  stats_.written_bytes += (away.written() - before) * parts_.page_bytes;
  if (!appended.ok()) Failed(appended);
  return away.written() == whole;
}

void SlowTier::Release(AwayKv& away, cache::PrefixLease& lease, const std::span<const TokenId> computed) {
  stats_.moved_out += away.pages() == 0 ? 1 : 0;
  cache_.GiveUpPages(lease, computed, away.written() - away.pages(), clock_.Now());
  away.SetPages(away.written());
}

// Part after part of all pages, into pages that nobody sees yet.
bool SlowTier::Return(AwayKv& away, cache::PrefixLease& lease) {
  std::vector<cache::PageRef> pages = cache_.TakePages(away.pages(), clock_.Now());
  for (size_t part = 0; part < parts_.count(); ++part) {
    const int64_t bytes = parts_.bytes(part);
    const StatusOr<const std::byte*> from = away.Part(part, returning_, bounce_);
    if (!from.ok()) {
      Failed(from.status());
      return false;
    }
    for (size_t p = 0; p < pages.size(); ++p) {
      std::memcpy(pages[p].data() + parts_.offsets_bytes[part], *from + static_cast<int64_t>(p) * bytes,
                  static_cast<size_t>(bytes));
    }
  }
  cache_.TakeBackPages(lease, std::move(pages));
  away.SetPages(0);
  ++stats_.brought_back;
  return true;
}

void SlowTier::Failed(const Status& status) {
  ++stats_.failures;
  open_from_ = clock_.Now() + kPauseNs;
  Logger("engine")->warn("the slow tier failed and is left alone for {} s: {}", kPauseNs / 1'000'000'000,
                         status.message());
}

SlowTierStats SlowTier::stats() const {
  SlowTierStats stats = stats_;
  const LayerStreams::Counts counts = streams_.counts();
  stats.streams = counts.streams;
  stats.streamed_bytes = counts.bytes;
  stats.read_ns = counts.read_ns;
  stats.stall_ns = counts.stall_ns;
  stats.used_bytes = store_->used_bytes();
  return stats;
}

}  // namespace invar::engine
