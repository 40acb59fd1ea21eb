// A store through which every Put passes a function of the test first.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/tiers/tier_store.h"

namespace invar::cache {

class WatchedStore : public TierStore {
 public:
  WatchedStore(std::unique_ptr<TierStore> store, std::function<void()> at_put)
      : store_(std::move(store)), at_put_(std::move(at_put)) {}

  std::string_view name() const override { return store_->name(); }
  std::vector<TierRecord> Inventory() override { return store_->Inventory(); }
  StatusOr<std::vector<TierRecord>> Find(const std::span<const TierKey> keys, TierTransfer& call) override {
    return store_->Find(keys, call);
  }
  Status Put(const TierRecord& record, TierTransfer& payload) override {
    at_put_();
    return store_->Put(record, payload);
  }
  StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) override { return store_->Get(key, sink); }
  Status Drop(const TierSpaces& of, TierTransfer& call) override { return store_->Drop(of, call); }
  bool Use(const TierKey& key, const TimeNs used_at) override { return store_->Use(key, used_at); }
  std::vector<TierKey> TakeGone() override { return store_->TakeGone(); }
  bool outlives_process() const override { return store_->outlives_process(); }
  uint64_t first_sequence() const override { return store_->first_sequence(); }
  TierContents Contents() const override { return store_->Contents(); }

 private:
  const std::unique_ptr<TierStore> store_;
  const std::function<void()> at_put_;
};

}  // namespace invar::cache
