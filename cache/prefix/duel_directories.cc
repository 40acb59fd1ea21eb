// A request in a directory is one span from where it resumes to its end.
#include "cache/prefix/duel_directories.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace invar::cache {
namespace {

CacheOptions DirectoryOptions(CacheOptions options) {
  options.backing = Backing::kNone;
  options.plans = false;  // Orders are judged by what all of them would have.
  return options;
}

}  // namespace

DuelDirectories::DuelDirectories(const CacheOptions& options)
    : options_(DirectoryOptions(options)),
      orders_({MakeEvictionOrder(kDuelOrders[0]), MakeEvictionOrder(kDuelOrders[1])}) {}

void DuelDirectories::PlayPrompt(const PrefixQuery& query, const TimeNs now) {
  std::array<int32_t, 2> resumed = {};
  const int32_t tokens = static_cast<int32_t>(query.tokens.size());
  for (size_t i = 0; i < directories_.size(); ++i) {
    if (directories_[i] == nullptr) {
      directories_[i] = std::make_unique<PrefixCache>(options_, *orders_[i], executor_, /*listener=*/nullptr);
    }
    PrefixCache& directory = *directories_[i];
    PrefixLease lease = directory.Acquire(query, now);
    resumed[i] = lease.match().state_tokens;
    std::vector<StateEmission> emissions;
    directory.Extend(lease, tokens, now);
    directory.Emit(lease, resumed[i], tokens, now, emissions);
    directory.Commit(lease, query.tokens, now);
  }
  score_.Count(resumed);
}

void DuelDirectories::PlayEnd(const Scope& scope, const std::span<const TokenId> computed, const CheckpointKind kind,
                              const TimeNs now) {
  const int32_t tokens = static_cast<int32_t>(computed.size());
  for (const std::unique_ptr<PrefixCache>& directory : directories_) {
    if (directory == nullptr) continue;
    const PrefixEntry none;  // It was counted when the prompt came.
    PrefixLease end = directory->Acquire(
        {.scope = scope, .tokens = computed, .prompt_tokens = tokens, .resume_limit = tokens - 1, .entry = &none}, now);
    directory->Extend(end, tokens, now);
    directory->Release(std::move(end), computed, kind, now);
  }
}

void DuelDirectories::Flush(const FlushOptions& what) {
  for (const std::unique_ptr<PrefixCache>& directory : directories_) {
    if (directory != nullptr) directory->Flush(what);
  }
}

void DuelDirectories::CheckIntegrity() const {
  for (const std::unique_ptr<PrefixCache>& directory : directories_) {
    if (directory != nullptr) directory->CheckIntegrity();
  }
}

}  // namespace invar::cache
