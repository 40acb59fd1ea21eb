// See code_shelf.h.
#include "engine/code_shelf.h"

#include <utility>

namespace invar::engine {

Digest CodeShelf::KeyOf(const CodedExport& coded, const cache::Scope& scope, const std::span<const TokenId> tokens) {
  static_assert(sizeof(TokenId) == sizeof(int32_t), "tokens are hashed as they lie in memory");
  return FingerprintBuilder()
      .AddFramed(ProvenanceOf(*coded.held, coded.point))
      .AddFramed(scope.tenant)
      .AddFramed(scope.salt)
      .Add(std::as_bytes(tokens))
      .Finish();
}

std::shared_ptr<const CodeShelf::Codes> CodeShelf::Find(const Digest& key, const int64_t flushes) {
  const MutexLock lock(mu_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  if (found->second->flushes != flushes) {
    Drop(found->second);
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->codes;
}

bool CodeShelf::Has(const Digest& key, const int64_t flushes) const {
  const MutexLock lock(mu_);
  const auto found = by_key_.find(key);
  return found != by_key_.end() && found->second->flushes == flushes;
}

void CodeShelf::Put(const Digest& key, const int64_t flushes, Codes codes) {
  Entry entry{.key = key, .flushes = flushes, .codes = nullptr};
  for (const std::vector<std::byte>& layer : codes) entry.bytes += std::ssize(layer);
  if (entry.bytes > bytes_max_) return;
  entry.codes = std::make_shared<const Codes>(std::move(codes));
  const MutexLock lock(mu_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) Drop(found->second);
  while (bytes_ + entry.bytes > bytes_max_) Drop(std::prev(entries_.end()));
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  by_key_[key] = entries_.begin();
}

int64_t CodeShelf::bytes() const {
  const MutexLock lock(mu_);
  return bytes_;
}

void CodeShelf::Drop(const std::list<Entry>::iterator entry) {
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

}  // namespace invar::engine
