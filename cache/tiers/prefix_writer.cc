// See prefix_writer.h.
#include "cache/tiers/prefix_writer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/tiers/prefix_keys.h"
#include "kernels/numerics.h"

namespace invar::cache {

using kernels::kPageTokens;

namespace {

// Tokens behind the last whole page.
std::span<const TokenId> TailOf(const OutgoingPrefix& prefix) {
  return std::span(prefix.tokens).subspan(prefix.names.size() * kPageTokens);
}

}  // namespace

PrefixWriter::PrefixWriter(Options options, const std::span<KnownTier> tiers, std::shared_ptr<TierEvents> events)
    : options_(std::move(options)), tiers_(tiers), events_(std::move(events)) {}

bool PrefixWriter::Write(const OutgoingPrefix& prefix, const TimeNs now) {
  Check(prefix.names.size() == prefix.tokens.size() / kPageTokens, "every whole page has a name", prefix.names.size());
  const TierSpace space = SpaceOf(prefix.scope);
  bool all = true;
  for (KnownTier& to : tiers_) {
    to.ForgetGone();
    // Nobody waits for one that does not answer.
    if (to.tier().is_paused()) {
      ++counts_.refused;
      ++passed_over_;
      continue;
    }
    // A state whose pages are missing could not be resumed from.
    all = WritePages(to, prefix, space, now) && (prefix.state.empty() || WriteState(to, prefix, space, now)) && all;
  }
  return all;
}

bool PrefixWriter::WritePages(KnownTier& to, const OutgoingPrefix& prefix, const TierSpace& space, const TimeNs now) {
  const size_t whole = prefix.names.size();
  for (size_t p = 0; p < whole; ++p) {
    const TierKey& key = prefix.names[p].key;
    // Where a tier gives up some of what was used at one time, the deepest goes first: the rest hangs on what is above.
    const auto used_at = prefix.used_at + static_cast<TimeNs>(whole - p);
    if (to.Use(key, used_at, now)) continue;
    const TierRecord record{
        .key = key, .space = space, .header = PageHeader(prefix.names[p].chain), .used_at = used_at};
    if (!Put(to, record, {prefix.pages[p]}, key, now)) return false;
    to.known().AddPage(key, space, to.UntilIfPut(now));
    to.known().PutBegan(key);
    ++counts_.pages;
  }
  return true;
}

Digest PrefixWriter::ChainBeforeTail(const OutgoingPrefix& prefix) const {
  return prefix.names.empty() ? ChainStart(options_.identity, prefix.scope) : prefix.names.back().chain;
}

bool PrefixWriter::WriteState(KnownTier& to, const OutgoingPrefix& prefix, const TierSpace& space, const TimeNs now) {
  const size_t whole = prefix.names.size();
  const Digest chain = ChainBeforeTail(prefix);
  const std::span<const TokenId> tail = TailOf(prefix);
  const TierKey directory = DirectoryKey(chain);
  const TierKey key = StateKey(chain, tail);
  if (to.Use(key, prefix.used_at, now)) return true;
  std::vector<std::span<const std::byte>> spans = {prefix.state};
  if (!tail.empty()) spans.push_back(prefix.pages[whole]);
  const TierRecord record{.key = key, .space = space, .header = StateHeader(chain, tail), .used_at = prefix.used_at};
  if (!Put(to, record, spans, key, now)) return false;
  to.known().AddState(directory, tail, key, space, to.UntilIfPut(now));
  to.known().PutBegan(key);
  ++counts_.states;
  if (!to.is_shared()) return true;
  // Who shares the tier finds the state by its directory alone.
  const TierRecord listing{.key = directory,
                           .space = space,
                           .header = DirectoryHeader(tail),
                           .used_at = prefix.used_at,
                           .merge = MergeDirectories};
  if (Put(to, listing, {}, key, now)) {
    to.known().PutBegan(key);
    return true;
  }
  to.known().Forget(key);
  return false;
}

bool PrefixWriter::IsStored(const OutgoingPrefix& prefix, const TimeNs now) {
  for (KnownTier& tier : tiers_) tier.ForgetGone();
  const auto is_there = [&](const TierKey& key) {
    return std::ranges::any_of(tiers_, [&](const KnownTier& tier) {
      return tier.tier().outlives_process() && tier.known().IsThere(key, now);
    });
  };
  if (!std::ranges::all_of(prefix.names, is_there, &PageName::key)) return false;
  if (prefix.state.empty()) return true;
  return is_there(StateKey(ChainBeforeTail(prefix), TailOf(prefix)));
}

bool PrefixWriter::Put(KnownTier& to, TierRecord record, const std::vector<std::span<const std::byte>>& spans,
                       const TierKey& believed, const TimeNs now) {
  record.payload_bytes = 0;
  for (const std::span<const std::byte> span : spans) record.payload_bytes += static_cast<int64_t>(span.size());
  const int64_t bytes = record.payload_bytes;
  if (!events_->BeginWrite(bytes, options_.copy_bytes_max)) {
    ++counts_.refused;
    return false;
  }
  const auto copy = std::make_shared<std::vector<std::byte>>();
  copy->reserve(static_cast<size_t>(bytes));
  for (const std::span<const std::byte> span : spans) copy->insert(copy->end(), span.begin(), span.end());
  TierPayload payload;
  if (bytes > 0) payload.spans.emplace_back(*copy);
  payload.keep_alive = copy;
  const auto done = [events = events_, known = &to.known(), bytes, believed](const Status& status) {
    // The index was told before it was true, so that nobody writes it twice.
    if (status.ok()) {
      events->Leave([known, believed] { known->PutEnded(believed); });
    } else {
      events->Post([known, believed] { known->Forget(believed); });
    }
    events->EndWrite(bytes);
  };
  const TimeNs deadline = std::max(now + options_.deadline, given_until_);
  const Status accepted = to.tier().Put(std::move(record), std::move(payload), deadline, done);
  if (accepted.ok()) return true;
  events_->EndWrite(bytes);
  ++counts_.refused;
  passed_over_ += accepted.code() == StatusCode::kUnavailable ? 1 : 0;
  return false;
}

}  // namespace invar::cache
