// See prefix_loader.h.
#include "cache/tiers/prefix_loader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/tiers/prefix_keys.h"
#include "kernels/numerics.h"

namespace invar::cache {

using kernels::kPageTokens;

namespace {

// Keys asked of a shared tier at once.
constexpr size_t kFindKeysMax = 4096;

}  // namespace

// One record to read.
struct PrefixLoader::Part {
  size_t tier = 0;  // Index into tiers_.
  TierKey key{};
  std::string header;  // What must have been stored with it.
};

// A window: parts from `first_page` on, the state's last.
struct PrefixLoader::Found {
  int32_t tokens = 0;  // 0: nothing.
  int32_t first_page = 0;
  std::vector<Part> pages;
  std::optional<Part> state;
  int32_t tail_tokens = 0;  // Positions of the last page that come with the state.
  bool is_cut = false;      // A deeper point has no room.
  bool is_paused = false;   // A tier that is left alone has some of it.
};

// One request's wait. Buffers are shared with the tiers, which may still hold them when the load has ended.
struct PrefixLoader::Load {
  // Set when it begins.
  int64_t ticket = 0;
  Scope scope;
  TierSpace space{};
  std::vector<TokenId> tokens;
  std::vector<Digest> chain;
  int32_t limit = 0;
  double tokens_per_second = 0;
  TimeNs deadline = 0;

  PrefixMatch have;
  std::map<TierKey, size_t> directories;  // Asked of a shared tier -> index into chain.
  bool is_dropped = false;                // Its scope was flushed meanwhile: what comes is not to be seen again.

  // The window.
  struct Buffers {
    std::vector<std::vector<std::byte>> pages;
    std::vector<std::byte> state;
  };
  std::shared_ptr<Buffers> buffers;  // Null: none.
  Found found;
  std::vector<Part> parts;  // found.pages, then the state's.
  int64_t bytes = 0;
  size_t issued = 0;  // Parts.
  size_t waiting = 0;
  size_t good_pages = 0;  // Pages before the first that failed.
  bool has_failed = false;
};

PrefixLoader::PrefixLoader(Options options, const std::span<KnownTier> tiers, std::shared_ptr<TierEvents> events)
    : options_(std::move(options)), tiers_(tiers), events_(std::move(events)) {}

PrefixLoader::~PrefixLoader() = default;

std::optional<int64_t> PrefixLoader::Begin(const Scope& scope, const std::span<const TokenId> tokens,
                                           const int32_t limit, const PrefixMatch& have, const double tokens_per_second,
                                           const TimeNs now) {
  if (tiers_.empty()) return std::nullopt;
  const int64_t ticket = ++last_ticket_;
  auto load = std::make_unique<Load>();
  load->ticket = ticket;
  load->scope = scope;
  load->space = SpaceOf(scope);
  load->tokens.assign(tokens.begin(), tokens.end());
  load->chain = ChainOf(options_.identity, scope, tokens);
  load->limit = limit;
  load->tokens_per_second = tokens_per_second;
  load->deadline = now + options_.deadline;
  load->have = have;
  Load& entry = *loads_.emplace(ticket, std::move(load)).first->second;
  bool begun = BeginReads(entry, now);
  for (size_t t = 0; t < tiers_.size() && !begun; ++t)
    begun = tiers_[t].is_shared() && BeginFind(entry, tiers_[t], now);
  if (begun) return ticket;
  loads_.erase(ticket);
  return std::nullopt;
}

bool PrefixLoader::Continue(const int64_t ticket, const PrefixMatch& have, const TimeNs now) {
  const auto entry = loads_.find(ticket);
  Check(entry != loads_.end(), "a load that has more waits for its continuation", ticket);
  Load& load = *entry->second;
  // What memory did not keep, or has given up again, is not read twice.
  const bool has_grown = have.kv_tokens > load.have.kv_tokens || have.state_tokens > load.have.state_tokens;
  load.have = have;
  if (!load.is_dropped && has_grown && now < load.deadline && BeginReads(load, now)) return true;
  loads_.erase(entry);
  return false;
}

std::vector<LoadedWindow> PrefixLoader::Take() { return std::exchange(loaded_, {}); }

void PrefixLoader::Drop(const FlushOptions& of) {
  for (const auto& [ticket, load] : loads_) load->is_dropped = load->is_dropped || of.Covers(load->scope);
}

void PrefixLoader::CheckIntegrity() const {
  int64_t bytes = 0;
  for (const auto& [ticket, load] : loads_) {
    Check(load->ticket == ticket, "a load is found by its ticket", ticket);
    if (load->buffers == nullptr) continue;
    for (const std::vector<std::byte>& page : load->buffers->pages) bytes += std::ssize(page);
    bytes += std::ssize(load->buffers->state);
  }
  Check(bytes == copy_bytes_, "copies of loads are counted", bytes, copy_bytes_);
}

// --- What to read ---

// The deepest resume point for which there is room: pages without a gap from what memory has, and (of recurrent models)
// a state.
PrefixLoader::Found PrefixLoader::Search(const Load& load, const TimeNs now) const {
  const bool has_state = options_.shape.state_bytes > 0;
  const int64_t room = options_.copy_bytes_max - copy_bytes_;
  Found found;
  found.first_page = load.have.kv_tokens / kPageTokens;
  // One that is left alone counts as having nothing, as does one that still writes: another may have it too.
  std::vector<char> is_paused;
  for (const KnownTier& tier : tiers_) is_paused.push_back(tier.tier().is_paused() ? 1 : 0);
  const auto has = [&](const size_t t, const TierKey& key) {
    if (!tiers_[t].known().IsThere(key, now)) return false;
    found.is_paused = found.is_paused || is_paused[t] != 0;
    return is_paused[t] == 0;
  };
  std::vector<Part> pages;
  // Takes the point after `at` tokens where it is deeper than the last and fits.
  const auto take = [&](const int64_t at, const int32_t tail_tokens, std::optional<Part> state) {
    if ((has_state && at > load.limit) || at <= found.tokens || at <= load.have.state_tokens) return;
    const int64_t page_count = static_cast<int64_t>(pages.size()) + (tail_tokens > 0 ? 1 : 0);
    const int64_t bytes = page_count * options_.shape.page_bytes + (has_state ? options_.shape.state_bytes : 0);
    // One may always go alone: what is larger than the limit could never be read otherwise.
    const bool is_alone = copy_bytes_ == 0 && found.tokens == 0;
    if (bytes > room && !is_alone) {
      found.is_cut = true;
      return;
    }
    found.tokens = static_cast<int32_t>(at);
    found.pages = pages;
    found.state = std::move(state);
    found.tail_tokens = tail_tokens;
  };
  for (size_t page = 0; page < load.chain.size(); ++page) {
    // `page` whole pages are there: what hangs on chain[page]?
    const Digest& chain = load.chain[page];
    const auto begin = static_cast<int64_t>(page) * kPageTokens;
    if (!has_state && begin > load.have.kv_tokens) take(begin, 0, std::nullopt);
    for (size_t t = 0; t < tiers_.size() && has_state; ++t) {
      for (const KnownRecords::State& state : tiers_[t].known().StatesOf(DirectoryKey(chain))) {
        const auto tail = static_cast<int32_t>(state.tail.size());
        if (begin + tail > static_cast<int64_t>(load.tokens.size()) || !has(t, state.key)) continue;
        if (!std::ranges::equal(state.tail, std::span(load.tokens).subspan(begin, tail))) continue;
        take(begin + tail, tail, Part{t, state.key, StateHeader(chain, state.tail)});
      }
    }
    if (page + 1 == load.chain.size()) break;
    if (static_cast<int32_t>(page) < found.first_page) continue;
    const Digest& after = load.chain[page + 1];
    const TierKey key = PageKey(after);
    size_t tier = 0;
    while (tier < tiers_.size() && !has(tier, key)) ++tier;
    if (tier == tiers_.size()) break;
    pages.push_back({tier, key, PageHeader(after)});
  }
  return found;
}

// Reading must beat running: bytes / bandwidth < tokens / rate.
bool PrefixLoader::Pays(const Found& found, const Load& load) const {
  if (load.tokens_per_second <= 0) return true;
  std::vector<int64_t> bytes(tiers_.size());
  for (const Part& page : found.pages) bytes[page.tier] += options_.shape.page_bytes;
  if (found.state.has_value()) bytes[found.state->tier] += options_.shape.state_bytes;
  double seconds = 0;
  for (size_t t = 0; t < tiers_.size(); ++t) {
    const double rate = bytes[t] > 0 ? tiers_[t].tier().Stats().read_bytes_per_second : 0;
    if (rate > 0) seconds += static_cast<double>(bytes[t]) / rate;
  }
  return seconds < (found.tokens - load.have.state_tokens) / load.tokens_per_second;
}

// --- Shared tiers are asked ---

bool PrefixLoader::BeginFind(Load& load, KnownTier& tier, const TimeNs now) {
  std::vector<TierKey> keys;
  for (size_t page = 0; page < load.chain.size() && keys.size() + 2 <= kFindKeysMax; ++page) {
    if (options_.shape.state_bytes > 0) {
      keys.push_back(DirectoryKey(load.chain[page]));
      load.directories[keys.back()] = page;
    }
    if (page > 0) keys.push_back(PageKey(load.chain[page]));
  }
  const auto done = [this, events = events_, &load, &tier, now](StatusOr<std::vector<TierRecord>> records) {
    events->Post([this, &load, &tier, now, records = std::move(records)] { FoundRecords(load, tier, records, now); });
  };
  return tier.tier().Find(std::move(keys), load.deadline, done).ok();
}

void PrefixLoader::FoundRecords(Load& load, KnownTier& tier, const StatusOr<std::vector<TierRecord>>& records,
                                const TimeNs now) {
  if (load.is_dropped) return EndWindow(load);
  if (records.ok()) {
    for (const TierRecord& record : *records) Learn(record, tier, load, now);
  }
  if (!BeginReads(load, now)) EndWindow(load);
}

// A directory names no chain: it is that of the load's tokens which was asked for by this key.
void PrefixLoader::Learn(const TierRecord& record, KnownTier& tier, const Load& load, const TimeNs now) {
  const TimeNs until = tier.UntilIfFound(now);
  if (IsPageHeader(record.header)) {
    if (record.payload_bytes == options_.shape.page_bytes) tier.known().AddPage(record.key, load.space, until);
    return;
  }
  const auto asked = load.directories.find(record.key);
  const auto tails = ReadDirectoryHeader(record.header);
  if (asked == load.directories.end() || !tails.has_value()) return;
  for (const std::vector<TokenId>& tail : *tails) {
    tier.known().AddState(record.key, tail, StateKey(load.chain[asked->second], tail), load.space, until);
  }
}

// --- A window ---

// False: nothing to read, or it does not pay, or no room for the copy.
bool PrefixLoader::BeginReads(Load& load, const TimeNs now) {
  for (KnownTier& tier : tiers_) tier.ForgetGone();
  Found found = Search(load, now);
  if (found.is_paused) ++counts_.paused;
  if (found.tokens == 0) {
    if (found.is_cut) ++counts_.refused;
    return false;
  }
  if (!Pays(found, load)) {
    ++counts_.too_dear;
    return false;
  }
  ++counts_.begun;
  const bool has_tail = found.tail_tokens > 0;
  load.buffers = std::make_shared<Load::Buffers>();
  load.buffers->pages.resize(found.pages.size() + (has_tail ? 1 : 0));
  for (std::vector<std::byte>& page : load.buffers->pages) page.resize(static_cast<size_t>(options_.shape.page_bytes));
  if (found.state.has_value()) load.buffers->state.resize(static_cast<size_t>(options_.shape.state_bytes));
  load.bytes = static_cast<int64_t>(load.buffers->pages.size()) * options_.shape.page_bytes +
               static_cast<int64_t>(load.buffers->state.size());
  copy_bytes_ += load.bytes;
  load.parts = found.pages;
  if (found.state.has_value()) load.parts.push_back(*found.state);
  load.good_pages = found.pages.size();
  load.found = std::move(found);
  load.issued = 0;
  load.waiting = 0;
  load.has_failed = false;
  IssueReads(load);
  return true;
}

// As many as the tiers take; the others when some have ended: a queue was full, or the first one probes a tier that was
// left alone (tier_guard.h).
void PrefixLoader::IssueReads(Load& load) {
  while (load.issued < load.parts.size() && !load.has_failed) {
    const size_t index = load.issued;
    const Part& part = load.parts[index];
    const size_t pages = load.found.pages.size();
    std::vector<std::span<std::byte>> spans;
    if (index < pages) {
      spans.emplace_back(load.buffers->pages[index]);
    } else {
      spans.emplace_back(load.buffers->state);
      if (load.found.tail_tokens > 0) spans.emplace_back(load.buffers->pages.back());
    }
    const auto done = [this, events = events_, &load, index](StatusOr<std::string> header) {
      events->Post([this, &load, index, header = std::move(header)] { PartDone(load, index, header); });
    };
    const Status accepted = tiers_[part.tier].tier().Get(
        part.key, {.spans = std::move(spans), .keep_alive = load.buffers}, load.deadline, done);
    if (!accepted.ok()) {
      const bool later =
          accepted.code() == StatusCode::kResourceExhausted || accepted.code() == StatusCode::kUnavailable;
      if (later && load.waiting > 0) return;
      done(accepted);
    }
    ++load.issued;
    ++load.waiting;
  }
}

void PrefixLoader::PartDone(Load& load, const size_t part, const StatusOr<std::string>& header) {
  const Part& wanted = load.parts[part];
  KnownRecords& known = tiers_[wanted.tier].known();
  const bool is_other = header.ok() && *header != wanted.header;
  const StatusCode code = header.status().code();
  if (is_other || code == StatusCode::kNotFound || code == StatusCode::kDataLoss) known.Forget(wanted.key);
  if (is_other || !header.ok()) {
    load.has_failed = true;
    load.good_pages = std::min(load.good_pages, part);
  }
  --load.waiting;
  IssueReads(load);
  if (load.waiting == 0) EndWindow(load);
}

// Without a state that goes with all pages, pages alone would not spare a recurrent model a token.
void PrefixLoader::EndWindow(Load& load) {
  LoadedWindow result{.ticket = load.ticket, .scope = load.scope, .limit = load.limit};
  if (load.buffers != nullptr) {
    const Found& found = load.found;
    const bool has_state = options_.shape.state_bytes > 0;
    const bool brings = !load.is_dropped && (!load.has_failed || (!has_state && load.good_pages > 0));
    if (brings) {
      size_t slowest = 0;
      for (const Part& part : load.parts) slowest = std::max(slowest, part.tier);
      result.tier = tiers_[slowest].tier().name();
      result.tokens = load.tokens;
      result.image.first_page = std::min(found.first_page, found.tokens / kPageTokens);
      result.image.end = found.tokens;
      if (load.has_failed) {
        load.buffers->pages.resize(load.good_pages);
        result.image.end = (result.image.first_page + static_cast<int32_t>(load.good_pages)) * kPageTokens;
      }
      result.image.pages = std::move(load.buffers->pages);
      result.image.state = std::move(load.buffers->state);
      result.has_more = found.is_cut && !load.has_failed;
      counts_.tokens += result.image.end - load.have.state_tokens;
    } else {
      ++counts_.failed;
    }
    copy_bytes_ -= load.bytes;
    load.bytes = 0;
    load.buffers.reset();
  }
  const bool has_ended = !result.has_more;
  loaded_.push_back(std::move(result));
  if (has_ended) loads_.erase(load.ticket);
}

}  // namespace invar::cache
