// One tier and what it is known to hold.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "cache/tiers/known_records.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

// Threads: engine thread only.
class KnownTier {
 public:
  explicit KnownTier(std::unique_ptr<Tier> tier)
      : tier_(std::move(tier)),
        is_shared_(tier_->Stats().records < 0),
        known_(is_shared_ ? kSharedRecordsMax : kOwnRecordsMax) {}

  Tier& tier() const { return *tier_; }
  // Other instances write there too: it cannot be listed, only asked.
  bool is_shared() const { return is_shared_; }
  KnownRecords& known() { return known_; }
  const KnownRecords& known() const { return known_; }

  // How long it is believed that a record is there which was put, or found, at `now`.
  TimeNs UntilIfPut(const TimeNs now) const { return Until(now, tier_->keeps_for() / 2); }
  TimeNs UntilIfFound(const TimeNs now) const { return Until(now, std::min(tier_->keeps_for() / 2, kFoundNs)); }

  // Whether the tier has the record, or gets it: it was used at `used_at` then. What went this moment is forgotten.
  bool Use(const TierKey& key, const TimeNs used_at, const TimeNs now) {
    if (!known_.Has(key, now)) return false;
    if (tier_->Use(key, used_at)) return true;
    ForgetGone();
    return false;
  }

  // Forgets what has gone from the tier meanwhile.
  void ForgetGone() {
    for (const TierKey& key : tier_->TakeGone()) known_.Forget(key);
  }

 private:
  // What shared tiers were asked is used at once or not at all, and who wrote it may have done so long ago.
  static constexpr TimeNs kFoundNs = TimeNs{60} * 1'000'000'000;
  // About 150 MB. Records of our own are bounded by the tier's budget.
  static constexpr size_t kSharedRecordsMax = size_t{1} << 20;
  static constexpr size_t kOwnRecordsMax = SIZE_MAX;

  TimeNs Until(const TimeNs now, const TimeNs for_ns) const { return is_shared_ ? now + for_ns : kNever; }

  // Set at construction.
  std::unique_ptr<Tier> tier_;
  bool is_shared_;

  KnownRecords known_;
};

}  // namespace invar::cache
