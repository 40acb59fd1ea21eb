// Keys, records and the two-step load (find in shared tiers, then read) of prefix_store.h.
#include "cache/tiers/prefix_store.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/fingerprint.h"
#include "kernels/numerics.h"

namespace invar::cache {
namespace {

using kernels::kPageTokens;

// The first byte of a header says what a record is.
constexpr char kPageRecord = 'P';       // P, space (SpaceOf).
constexpr char kStateRecord = 'S';      // S, space, chain before its page, tail.
constexpr char kDirectoryRecord = 'D';  // D, then the tails of the states that hang on one chain.
// What is known of shared tiers is forgotten beyond so many records: it can be asked again.
constexpr size_t kIndexMax = size_t{1} << 20;
// Keys asked of a shared tier at once.
constexpr size_t kFindKeysMax = 4096;

std::span<const std::byte> BytesOf(const std::span<const TokenId> tokens) { return std::as_bytes(tokens); }

TierKey KeyOf(const std::string_view kind, const Digest& chain, const std::span<const TokenId> tail = {}) {
  FingerprintBuilder builder;
  const Digest digest = builder.AddFramed(kind).Add(std::as_bytes(std::span(chain))).Add(BytesOf(tail)).Finish();
  TierKey key;
  std::memcpy(key.data(), digest.data(), key.size());
  return key;
}
TierKey PageKey(const Digest& chain_after) { return KeyOf("page", chain_after); }
TierKey StateKey(const Digest& chain_before, const std::span<const TokenId> tail) {
  return KeyOf("state", chain_before, tail);
}
TierKey DirectoryKey(const Digest& chain_before) { return KeyOf("directory", chain_before); }

void AddBytes(std::string& text, const std::span<const std::byte> bytes) {
  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
void AddTail(std::string& text, const std::span<const TokenId> tail) {
  text.push_back(static_cast<char>(tail.size()));  // Below a page: 63 at most.
  AddBytes(text, BytesOf(tail));
}
std::string HeaderOf(const char kind, const Digest& space) {
  std::string header(1, kind);
  AddBytes(header, std::as_bytes(std::span(space)));
  return header;
}

// Reads a header from the front; nothing where it is too short.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string_view text) : text_(text) {}
  std::optional<Digest> TakeDigest() {
    Digest digest;
    if (text_.size() < digest.size()) return std::nullopt;
    std::memcpy(digest.data(), text_.data(), digest.size());
    text_.remove_prefix(digest.size());
    return digest;
  }
  std::optional<std::vector<TokenId>> TakeTail() {
    if (text_.empty()) return std::nullopt;
    const size_t count = static_cast<unsigned char>(text_.front());
    text_.remove_prefix(1);
    if (count >= kPageTokens || text_.size() < count * sizeof(TokenId)) return std::nullopt;
    std::vector<TokenId> tail(count);
    std::memcpy(static_cast<void*>(tail.data()), text_.data(), count * sizeof(TokenId));
    text_.remove_prefix(count * sizeof(TokenId));
    return tail;
  }
  bool AtEnd() const { return text_.empty(); }

 private:
  std::string_view text_;
};

}  // namespace

// What the tiers' threads leave for the engine thread.
struct PrefixStore::Shared {
  Mutex mu;
  CondVar write_ended;  // Or a drop.
  int64_t ended GUARDED_BY(mu) = 0;
  std::function<void()> wake GUARDED_BY(mu);
  std::vector<std::function<void(PrefixStore&)>> done GUARDED_BY(mu);
  int64_t io_bytes GUARDED_BY(mu) = 0;  // Copies under way.
  int64_t writing_bytes GUARDED_BY(mu) = 0;
  int64_t dropping GUARDED_BY(mu) = 0;  // Records.

  bool Reserve(const int64_t bytes, const int64_t bytes_max, const bool writing) {
    const MutexLock lock(mu);
    if (io_bytes + bytes > bytes_max) return false;
    io_bytes += bytes;
    if (writing) writing_bytes += bytes;
    return true;
  }
  void Return(const int64_t bytes, const bool writing) {
    const MutexLock lock(mu);
    io_bytes -= bytes;
    if (!writing) return;
    writing_bytes -= bytes;
    ++ended;
    write_ended.NotifyAll();
  }
  void CountDropping(const int64_t more) {
    const MutexLock lock(mu);
    dropping += more;
    if (more > 0) return;
    ++ended;
    write_ended.NotifyAll();
  }
  void Post(std::function<void(PrefixStore&)> event) {
    const MutexLock lock(mu);
    done.push_back(std::move(event));
    if (wake) wake();
  }
};

// One request's wait. Buffers are shared with the tiers, which may still hold them when the load has ended.
struct PrefixStore::Load {
  LoadedPrefix result;
  std::vector<Digest> chain;
  Digest space{};
  std::map<TierKey, size_t> directories;  // Asked of a shared tier -> index into chain.
  int32_t limit = 0;
  PrefixMatch have;
  double tokens_per_second = 0;
  TimeNs deadline = 0;

  struct Buffers {
    std::vector<std::vector<std::byte>> pages;
    std::vector<std::byte> state;
  };
  std::shared_ptr<Buffers> buffers;
  int64_t bytes = 0;
  int32_t waiting = 0;     // Parts under way.
  int32_t good_pages = 0;  // Pages before the first that failed.
  bool state_failed = false;
  bool dropped = false;  // Its scope was, meanwhile: what comes is not to be seen again.
  size_t slowest = 0;    // Of the tiers read from.
};

struct PrefixStore::Found {
  int32_t tokens = 0;  // 0: nothing.
  int32_t first_page = 0;
  std::vector<std::pair<TierKey, size_t>> pages;  // From first_page on, whole ones, with the tier to read from.
  std::optional<std::pair<TierKey, size_t>> state;
  int32_t tail_tokens = 0;  // Positions of the last page that come with the state.
};

namespace {

size_t FastestOf(const uint32_t tiers) { return static_cast<size_t>(std::countr_zero(tiers)); }

}  // namespace

PrefixStore::PrefixStore(const PrefixStoreOptions& options, std::vector<std::unique_ptr<Tier>> tiers,
                         std::function<void()> wake)
    : options_(options), tiers_(std::move(tiers)), shared_(std::make_shared<Shared>()) {
  {
    const MutexLock lock(shared_->mu);
    shared_->wake = std::move(wake);
  }
  for (size_t t = 0; t < tiers_.size(); ++t) {
    if (tiers_[t]->Stats().records < 0) shared_tiers_ |= 1U << t;
    for (const TierRecord& record : tiers_[t]->Inventory()) Learn(record, t);
  }
}

PrefixStore::~PrefixStore() {
  const MutexLock lock(shared_->mu);
  shared_->wake = nullptr;
}

// --- Keys ---

std::vector<Digest> PrefixStore::Chain(const Scope& scope, const std::span<const TokenId> tokens) const {
  std::vector<Digest> chain;
  chain.push_back(FingerprintBuilder()
                      .AddFramed(options_.identity)
                      .AddFramed(scope.tenant)
                      .AddFramed(scope.salt)
                      .AddFramed(scope.provenance)
                      .Finish());
  for (size_t at = 0; at + kPageTokens <= tokens.size(); at += kPageTokens) {
    chain.push_back(FingerprintBuilder()
                        .Add(std::as_bytes(std::span(chain.back())))
                        .Add(BytesOf(tokens.subspan(at, kPageTokens)))
                        .Finish());
  }
  return chain;
}

// Half of it says the tenant, half of it the salt too: what a tenant or one of its salts left can be told by records
// alone, after a restart too. Never a key, so halves suffice.
Digest PrefixStore::SpaceOf(const std::string& tenant, const std::string& salt) {
  const Digest of_tenant = FingerprintBuilder().AddFramed("tenant").AddFramed(tenant).Finish();
  const Digest of_salt = FingerprintBuilder().AddFramed("salt").AddFramed(tenant).AddFramed(salt).Finish();
  Digest space;
  const auto half = static_cast<std::ptrdiff_t>(space.size() / 2);
  std::copy_n(of_tenant.begin(), half, space.begin());
  std::copy_n(of_salt.begin(), half, space.begin() + half);
  return space;
}

// --- What is there ---

PrefixStore::StateRecord& PrefixStore::StateIn(const TierKey& directory, const std::span<const TokenId> tail,
                                               const TierKey& key, const Digest& space) {
  std::vector<StateRecord>& records = states_[directory];
  for (StateRecord& record : records) {
    if (record.key == key) return record;
  }
  records.push_back({{tail.begin(), tail.end()}, key, {0, space}});
  return records.back();
}

void PrefixStore::Learn(const TierRecord& record, const size_t tier) {
  if (record.header.empty()) return;
  HeaderReader reader(std::string_view(record.header).substr(1));
  const std::optional<Digest> space = reader.TakeDigest();
  if (!space.has_value()) return;
  if (record.header[0] == kPageRecord && record.payload_bytes == options_.shape.page_bytes) {
    Place& place = pages_[record.key];
    place.tiers |= 1U << tier;
    place.space = *space;
  } else if (record.header[0] == kStateRecord) {
    const std::optional<Digest> chain = reader.TakeDigest();
    const std::optional<std::vector<TokenId>> tail = reader.TakeTail();
    if (!chain.has_value() || !tail.has_value()) return;
    StateIn(DirectoryKey(*chain), *tail, record.key, *space).place.tiers |= 1U << tier;
  }
}

// A directory names no chain: it is that of the load's tokens which was asked for by this key.
void PrefixStore::LearnDirectory(const TierRecord& record, const size_t tier, const Load& load) {
  const auto asked = load.directories.find(record.key);
  if (asked == load.directories.end()) return;
  const Digest& chain = load.chain[asked->second];
  HeaderReader reader(std::string_view(record.header).substr(1));
  while (!reader.AtEnd()) {
    const std::optional<std::vector<TokenId>> tail = reader.TakeTail();
    if (!tail.has_value()) return;
    StateIn(record.key, *tail, StateKey(chain, *tail), load.space).place.tiers |= 1U << tier;
  }
}

void PrefixStore::Forget(const TierKey& key) {
  if (pages_.erase(key) > 0) return;
  for (auto it = states_.begin(); it != states_.end(); ++it) {
    if (std::erase_if(it->second, [&](const StateRecord& record) { return record.key == key; }) == 0) continue;
    if (it->second.empty()) states_.erase(it);
    return;
  }
}

void PrefixStore::BoundIndex() {
  if (pages_.size() + states_.size() <= kIndexMax) return;
  for (auto& [key, place] : pages_) place.tiers &= ~shared_tiers_;
  std::erase_if(pages_, [](const auto& entry) { return entry.second.tiers == 0; });
  for (auto& [directory, records] : states_) {
    for (StateRecord& record : records) record.place.tiers &= ~shared_tiers_;
    std::erase_if(records, [](const StateRecord& record) { return record.place.tiers == 0; });
  }
  std::erase_if(states_, [](const auto& entry) { return entry.second.empty(); });
}

void PrefixStore::Drop(const FlushOptions& of, const TimeNs now) {
  const Digest meant = SpaceOf(of.tenant.value_or(""), of.salt.value_or(""));
  const size_t compared = !of.tenant.has_value() ? 0 : of.salt.has_value() ? meant.size() : meant.size() / 2;
  std::vector<std::pair<TierKey, uint32_t>> keys;
  const auto add = [&](const TierKey& key, const Place& place) {
    if (std::memcmp(place.space.data(), meant.data(), compared) == 0) keys.emplace_back(key, place.tiers);
  };
  for (const auto& [key, place] : pages_) add(key, place);
  for (const auto& [directory, records] : states_) {
    for (const StateRecord& record : records) add(record.key, record.place);
  }
  for (const auto& [key, tiers] : keys) {
    for (size_t t = 0; t < tiers_.size(); ++t) {
      // What cannot be dropped now can no longer be found here, and is replaced where it is written again.
      if ((tiers >> t & 1) == 0) continue;
      shared_->CountDropping(1);
      const auto done = [shared = shared_](const Status&) { shared->CountDropping(-1); };
      if (!tiers_[t]->Drop(key, now + options_.deadlines.write, done).ok()) shared_->CountDropping(-1);
    }
    Forget(key);
  }
  for (const auto& [ticket, load] : loads_) {
    if (of.Covers(load->result.scope)) load->dropped = true;
  }
}

// --- Out ---

bool PrefixStore::Put(const size_t tier, TierRecord record, const std::vector<std::span<const std::byte>>& spans,
                      const TimeNs now) {
  record.payload_bytes = 0;
  for (const std::span<const std::byte> span : spans) record.payload_bytes += static_cast<int64_t>(span.size());
  const int64_t bytes = record.payload_bytes;
  if (!shared_->Reserve(bytes, options_.io_bytes_max, /*writing=*/true)) {
    ++counts_.writes_refused;
    return false;
  }
  const auto copy = std::make_shared<std::vector<std::byte>>();
  copy->reserve(static_cast<size_t>(bytes));
  for (const std::span<const std::byte> span : spans) copy->insert(copy->end(), span.begin(), span.end());
  TierPayload payload;
  if (bytes > 0) payload.spans.emplace_back(*copy);
  payload.keep_alive = copy;
  const TierKey key = record.key;
  const Status accepted = tiers_[tier]->Put(std::move(record), std::move(payload), now + options_.deadlines.write,
                                            [shared = shared_, bytes, key](const Status& status) {
                                              shared->Return(bytes, /*writing=*/true);
                                              // The index was told before it was true: who came meanwhile had a miss.
                                              if (!status.ok())
                                                shared->Post([key](PrefixStore& store) { store.Forget(key); });
                                            });
  if (accepted.ok()) return true;
  shared_->Return(bytes, /*writing=*/true);
  ++counts_.writes_refused;
  return false;
}

bool PrefixStore::Write(const Scope& scope, const StoredImage& image, const TimeNs now) {
  const std::vector<Digest> chain = Chain(scope, image.tokens);
  const Digest space = SpaceOf(scope.tenant, scope.salt);
  const size_t whole = chain.size() - 1;
  bool all = true;
  for (size_t t = 0; t < tiers_.size(); ++t) {
    bool pages = true;
    for (size_t p = 0; p < whole && pages; ++p) {
      const TierKey key = PageKey(chain[p + 1]);
      const auto known = pages_.find(key);
      if (known != pages_.end() && (known->second.tiers >> t & 1) != 0) continue;
      pages =
          Put(t, {.key = key, .header = HeaderOf(kPageRecord, space), .used_at = image.used_at}, {image.pages[p]}, now);
      if (!pages) break;
      Place& place = pages_[key];
      place.tiers |= 1U << t;
      place.space = space;
      ++counts_.pages_written;
    }
    // A state whose pages are missing could not be resumed from.
    all = pages && (image.state.empty() || WriteState(t, image, chain, space, now)) && all;
  }
  BoundIndex();
  return all;
}

bool PrefixStore::WriteState(const size_t tier, const StoredImage& image, const std::vector<Digest>& chain,
                             const Digest& space, const TimeNs now) {
  const size_t whole = chain.size() - 1;
  const std::span<const TokenId> tail = image.tokens.subspan(whole * kPageTokens);
  const TierKey directory = DirectoryKey(chain.back());
  const TierKey key = StateKey(chain.back(), tail);
  if (const auto known = states_.find(directory); known != states_.end()) {
    for (const StateRecord& record : known->second) {
      if (record.key == key && (record.place.tiers >> tier & 1) != 0) return true;
    }
  }
  std::string header = HeaderOf(kStateRecord, space);
  AddBytes(header, std::as_bytes(std::span(chain.back())));
  AddTail(header, tail);
  std::vector<std::span<const std::byte>> spans = {image.state};
  if (!tail.empty()) spans.push_back(image.pages[whole]);
  if (!Put(tier, {.key = key, .header = std::move(header), .used_at = image.used_at}, spans, now)) return false;
  StateIn(directory, tail, key, space).place.tiers |= 1U << tier;
  ++counts_.checkpoints_written;
  if (!IsShared(tier)) return true;
  // Others that share the tier cannot list it: they find states by this.
  std::string list(1, kDirectoryRecord);
  for (const StateRecord& record : states_[directory]) AddTail(list, record.tail);
  return Put(tier, {.key = directory, .header = std::move(list)}, {}, now);
}

int64_t PrefixStore::dropping() const {
  const MutexLock lock(shared_->mu);
  return shared_->dropping;
}

int64_t PrefixStore::writing_bytes() const {
  const MutexLock lock(shared_->mu);
  return shared_->writing_bytes;
}

int64_t PrefixStore::ended() const {
  const MutexLock lock(shared_->mu);
  return shared_->ended;
}

bool PrefixStore::AwaitEnd(const int64_t ended, const Clock& clock, const TimeNs deadline,
                           const std::stop_token& hurry) const {
  const std::stop_callback wake(hurry, [this] {
    const MutexLock lock(shared_->mu);
    shared_->write_ended.NotifyAll();
  });
  const MutexLock lock(shared_->mu);
  while (shared_->ended == ended) {
    const TimeNs left = deadline - clock.Now();
    if (left <= 0 || hurry.stop_requested()) return false;
    shared_->write_ended.WaitFor(shared_->mu, std::chrono::nanoseconds(left));
  }
  return true;
}

// --- In ---

// The deepest resume point: pages without a gap from what memory has, and (of recurrent models) a state.
PrefixStore::Found PrefixStore::Search(const std::vector<Digest>& chain, const std::span<const TokenId> tokens,
                                       const int32_t limit, const PrefixMatch& have) const {
  Found found;
  found.first_page = have.kv_tokens / kPageTokens;
  const bool has_state = options_.shape.state_bytes > 0;
  std::vector<std::pair<TierKey, size_t>> pages;
  for (size_t page = 0; page < chain.size(); ++page) {
    // `page` whole pages are there: what hangs on chain[page]?
    if (has_state) {
      if (const auto records = states_.find(DirectoryKey(chain[page])); records != states_.end()) {
        for (const StateRecord& record : records->second) {
          const size_t at = page * kPageTokens + record.tail.size();
          if (record.place.tiers == 0 || at > static_cast<size_t>(limit) || at <= static_cast<size_t>(found.tokens) ||
              at <= static_cast<size_t>(have.state_tokens) ||
              !std::ranges::equal(record.tail, tokens.subspan(page * kPageTokens, record.tail.size()))) {
            continue;
          }
          found.tokens = static_cast<int32_t>(at);
          found.pages = pages;
          found.state = {record.key, FastestOf(record.place.tiers)};
          found.tail_tokens = static_cast<int32_t>(record.tail.size());
        }
      }
    } else if (static_cast<int32_t>(page * kPageTokens) > have.kv_tokens) {
      found.tokens = static_cast<int32_t>(page * kPageTokens);
      found.pages = pages;
    }
    if (page + 1 == chain.size()) break;
    if (static_cast<int32_t>(page) < found.first_page) continue;
    const TierKey key = PageKey(chain[page + 1]);
    const auto place = pages_.find(key);
    if (place == pages_.end() || place->second.tiers == 0) break;
    pages.emplace_back(key, FastestOf(place->second.tiers));
  }
  return found;
}

// Reading must beat running: bytes / bandwidth < tokens / rate.
bool PrefixStore::Pays(const Found& found, const PrefixMatch& have, const double tokens_per_second) const {
  if (tokens_per_second <= 0) return true;
  std::vector<int64_t> bytes(tiers_.size());
  for (const auto& [key, tier] : found.pages) bytes[tier] += options_.shape.page_bytes;
  if (found.state.has_value()) bytes[found.state->second] += options_.shape.state_bytes;
  double seconds = 0;
  for (size_t t = 0; t < tiers_.size(); ++t) {
    const double rate = bytes[t] > 0 ? tiers_[t]->Stats().read_bytes_per_second : 0;
    if (rate > 0) seconds += static_cast<double>(bytes[t]) / rate;
  }
  const int32_t saved = found.tokens - have.state_tokens;
  return seconds < saved / tokens_per_second;
}

std::optional<int64_t> PrefixStore::BeginLoad(const Scope& scope, const std::span<const TokenId> tokens,
                                              const int32_t limit, const PrefixMatch& have,
                                              const double tokens_per_second, const TimeNs now) {
  if (tiers_.empty()) return std::nullopt;
  auto load = std::make_unique<Load>();
  load->result.ticket = ++last_ticket_;
  load->result.scope = scope;
  load->result.tokens.assign(tokens.begin(), tokens.end());
  load->chain = Chain(scope, tokens);
  load->space = SpaceOf(scope.tenant, scope.salt);
  load->limit = limit;
  load->have = have;
  load->tokens_per_second = tokens_per_second;
  load->deadline = now + options_.deadlines.read;
  Load& entry = *loads_.emplace(load->result.ticket, std::move(load)).first->second;
  bool begun = BeginReads(entry);
  for (size_t t = 0; t < tiers_.size() && !begun; ++t) begun = IsShared(t) && BeginFind(entry, t);
  if (begun) return last_ticket_;
  loads_.erase(last_ticket_);
  return std::nullopt;
}

bool PrefixStore::BeginFind(Load& load, const size_t tier) {
  std::vector<TierKey> keys;
  for (size_t page = 0; page < load.chain.size() && keys.size() + 2 <= kFindKeysMax; ++page) {
    if (options_.shape.state_bytes > 0) {
      keys.push_back(DirectoryKey(load.chain[page]));
      load.directories[keys.back()] = page;
    }
    if (page > 0) keys.push_back(PageKey(load.chain[page]));
  }
  const int64_t ticket = load.result.ticket;
  const Status accepted = tiers_[tier]->Find(
      std::move(keys), load.deadline, [shared = shared_, ticket, tier](StatusOr<std::vector<TierRecord>> records) {
        shared->Post([ticket, tier, records = std::move(records)](PrefixStore& store) {
          const auto entry = store.loads_.find(ticket);
          if (entry == store.loads_.end()) return;
          Load& waiting = *entry->second;
          if (waiting.dropped) return store.EndOf(waiting);
          if (records.ok()) {
            for (const TierRecord& record : *records) {
              if (!record.header.empty() && record.header[0] == kDirectoryRecord) {
                store.LearnDirectory(record, tier, waiting);
              } else {
                store.Learn(record, tier);
              }
            }
          }
          if (!store.BeginReads(waiting)) store.EndOf(waiting);
        });
      });
  return accepted.ok();
}

// False: nothing to read, or it does not pay, or no room for the copy.
bool PrefixStore::BeginReads(Load& load) {
  const Found found = Search(load.chain, load.result.tokens, load.limit, load.have);
  if (found.tokens == 0) return false;
  if (!Pays(found, load.have, load.tokens_per_second)) {
    ++counts_.loads_too_dear;
    return false;
  }
  const int64_t page_bytes = options_.shape.page_bytes;
  const bool has_tail = found.tail_tokens > 0;
  load.bytes = (static_cast<int64_t>(found.pages.size()) + (has_tail ? 1 : 0)) * page_bytes +
               (found.state.has_value() ? options_.shape.state_bytes : 0);
  if (!shared_->Reserve(load.bytes, options_.io_bytes_max, /*writing=*/false)) {
    load.bytes = 0;
    return false;
  }
  ++counts_.loads;
  load.result.tokens.resize(found.tokens);
  load.result.first_page = std::min(found.first_page, found.tokens / kPageTokens);
  load.buffers = std::make_shared<Load::Buffers>();
  load.buffers->pages.resize(found.pages.size() + (has_tail ? 1 : 0));
  for (std::vector<std::byte>& page : load.buffers->pages) page.resize(page_bytes);
  load.good_pages = static_cast<int32_t>(found.pages.size());
  // Counted before the first can end.
  load.waiting = static_cast<int32_t>(found.pages.size()) + (found.state.has_value() ? 1 : 0);
  if (found.state.has_value()) {
    load.buffers->state.resize(options_.shape.state_bytes);
    std::vector<std::span<std::byte>> spans = {load.buffers->state};
    if (has_tail) spans.emplace_back(load.buffers->pages.back());
    Read(load, found.state->second, found.state->first, -1, std::move(spans));
  }
  for (size_t p = 0; p < found.pages.size(); ++p) {
    Read(load, found.pages[p].second, found.pages[p].first, static_cast<int32_t>(p), {load.buffers->pages[p]});
  }
  return true;
}

void PrefixStore::Read(Load& load, const size_t tier, const TierKey& key, const int32_t page,
                       std::vector<std::span<std::byte>> spans) {
  load.slowest = std::max(load.slowest, tier);
  const int64_t ticket = load.result.ticket;
  const auto done = [shared = shared_, ticket, key, page](const Status& status) {
    shared->Post([=](PrefixStore& store) { store.PartDone(ticket, key, page, status); });
  };
  const Status accepted = tiers_[tier]->Get(key, {.spans = std::move(spans), .keep_alive = load.buffers}, load.deadline,
                                            [done](const StatusOr<std::string>& header) { done(header.status()); });
  if (!accepted.ok()) done(accepted);
}

void PrefixStore::PartDone(const int64_t ticket, const TierKey& key, const int32_t page, const Status& status) {
  if (status.code() == StatusCode::kNotFound || status.code() == StatusCode::kDataLoss) Forget(key);
  const auto entry = loads_.find(ticket);
  Check(entry != loads_.end(), "a load ends after its parts", ticket);
  Load& load = *entry->second;
  if (!status.ok() && page >= 0) load.good_pages = std::min(load.good_pages, page);
  if (!status.ok() && page < 0) load.state_failed = true;
  if (--load.waiting == 0) EndOf(load);
}

// Without a state that goes with all pages, pages alone would not spare a recurrent model a token.
void PrefixStore::EndOf(Load& load) {
  LoadedPrefix result = std::move(load.result);
  if (load.buffers != nullptr) {
    const size_t wanted = load.buffers->pages.size();
    const bool has_state = options_.shape.state_bytes > 0;
    const bool tail_with_state = has_state && result.tokens.size() % kPageTokens != 0;
    const size_t whole = wanted - (tail_with_state ? 1 : 0);
    const bool complete = static_cast<size_t>(load.good_pages) == whole && !load.state_failed;
    if (!load.dropped && (complete || (!has_state && load.good_pages > 0))) {
      load.buffers->pages.resize(complete ? wanted : static_cast<size_t>(load.good_pages));
      if (!complete) result.tokens.resize((result.first_page + load.good_pages) * kPageTokens);
      result.pages = std::move(load.buffers->pages);
      result.state = std::move(load.buffers->state);
      result.tier = tiers_[load.slowest]->name();
      counts_.loaded_tokens += static_cast<int64_t>(result.tokens.size()) - load.have.state_tokens;
    } else {
      ++counts_.loads_failed;
    }
    shared_->Return(load.bytes, /*writing=*/false);
  }
  const int64_t ticket = result.ticket;
  loaded_.push_back(std::move(result));
  loads_.erase(ticket);
}

std::vector<LoadedPrefix> PrefixStore::TakeLoaded(const TimeNs now) {
  next_poll_ = kNever;
  for (const std::unique_ptr<Tier>& tier : tiers_) next_poll_ = std::min(next_poll_, tier->Poll(now));
  std::vector<std::function<void(PrefixStore&)>> done;
  {
    const MutexLock lock(shared_->mu);
    done.swap(shared_->done);
  }
  for (const std::function<void(PrefixStore&)>& event : done) event(*this);
  return std::exchange(loaded_, {});
}

std::vector<std::pair<std::string_view, TierStats>> PrefixStore::Stats() const {
  std::vector<std::pair<std::string_view, TierStats>> stats;
  for (const std::unique_ptr<Tier>& tier : tiers_) stats.emplace_back(tier->name(), tier->Stats());
  return stats;
}

}  // namespace invar::cache
