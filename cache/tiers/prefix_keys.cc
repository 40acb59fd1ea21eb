// See prefix_keys.h.
#include "cache/tiers/prefix_keys.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/numerics.h"

namespace invar::cache {
namespace {

using kernels::kPageTokens;

// The first byte of a header.
constexpr char kPage = 'P';
constexpr char kState = 'S';
constexpr char kDirectory = 'D';

std::span<const std::byte> BytesOf(const std::span<const TokenId> tokens) { return std::as_bytes(tokens); }

TierKey KeyOf(const std::string_view kind, const Digest& chain, const std::span<const TokenId> tail = {}) {
  FingerprintBuilder builder;
  const Digest digest = builder.AddFramed(kind).Add(std::as_bytes(std::span(chain))).Add(BytesOf(tail)).Finish();
  TierKey key;
  std::memcpy(key.data(), digest.data(), key.size());
  return key;
}

Digest ChainAfter(const Digest& before, const std::span<const TokenId> page) {
  Check(page.size() == kPageTokens, "a chain goes on by whole pages", page.size());
  return FingerprintBuilder().Add(std::as_bytes(std::span(before))).Add(BytesOf(page)).Finish();
}

void AddBytes(std::string& text, const std::span<const std::byte> bytes) {
  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
void AddTail(std::string& text, const std::span<const TokenId> tail) {
  Check(tail.size() < kPageTokens, "a tail ends within its page", tail.size());
  text.push_back(static_cast<char>(tail.size()));
  AddBytes(text, BytesOf(tail));
}

// Takes what a header says off its front; nothing where it is too short.
std::optional<Digest> TakeDigest(std::string_view& text) {
  Digest digest;
  if (text.size() < digest.size()) return std::nullopt;
  std::memcpy(digest.data(), text.data(), digest.size());
  text.remove_prefix(digest.size());
  return digest;
}
std::optional<std::vector<TokenId>> TakeTail(std::string_view& text) {
  if (text.empty()) return std::nullopt;
  const size_t count = static_cast<unsigned char>(text.front());
  text.remove_prefix(1);
  if (count >= kPageTokens || text.size() < count * sizeof(TokenId)) return std::nullopt;
  std::vector<TokenId> tail(count);
  std::memcpy(static_cast<void*>(tail.data()), text.data(), count * sizeof(TokenId));
  text.remove_prefix(count * sizeof(TokenId));
  return tail;
}

constexpr size_t kTenantBytes = std::tuple_size_v<TierSpace> / 2;

void AddHalf(const Digest& digest, const size_t at, TierSpaces& spaces) {
  std::memcpy(spaces.space.data() + at, digest.data(), kTenantBytes);
  spaces.bytes = at + kTenantBytes;
}
void AddTenant(const std::string& tenant, TierSpaces& spaces) {
  AddHalf(FingerprintBuilder().AddFramed("tenant").AddFramed(tenant).Finish(), 0, spaces);
}
void AddSalt(const std::string& tenant, const std::string& salt, TierSpaces& spaces) {
  AddHalf(FingerprintBuilder().AddFramed("salt").AddFramed(tenant).AddFramed(salt).Finish(), kTenantBytes, spaces);
}

}  // namespace

Digest ChainStart(const std::string& identity, const Scope& scope) {
  return FingerprintBuilder()
      .AddFramed(identity)
      .AddFramed(scope.tenant)
      .AddFramed(scope.salt)
      .AddFramed(scope.provenance)
      .Finish();
}

PageName NameOfPage(const Digest& chain_before, const std::span<const TokenId> tokens) {
  const Digest chain = ChainAfter(chain_before, tokens);
  return {.chain = chain, .key = PageKey(chain)};
}

std::vector<Digest> ChainOf(const std::string& identity, const Scope& scope, const std::span<const TokenId> tokens) {
  std::vector<Digest> chain = {ChainStart(identity, scope)};
  for (size_t at = 0; at + kPageTokens <= tokens.size(); at += kPageTokens) {
    chain.push_back(ChainAfter(chain.back(), tokens.subspan(at, kPageTokens)));
  }
  return chain;
}

TierKey PageKey(const Digest& chain_after) { return KeyOf("page", chain_after); }
TierKey StateKey(const Digest& chain_before, const std::span<const TokenId> tail) {
  return KeyOf("state", chain_before, tail);
}
TierKey DirectoryKey(const Digest& chain_before) { return KeyOf("directory", chain_before); }

TierSpaces SpacesOf(const FlushOptions& of) {
  TierSpaces spaces;
  if (of.tenant.has_value()) AddTenant(*of.tenant, spaces);
  if (of.salt.has_value()) AddSalt(of.tenant.value_or(""), *of.salt, spaces);
  return spaces;
}

TierSpace SpaceOf(const Scope& scope) { return SpacesOf({.tenant = scope.tenant, .salt = scope.salt}).space; }

std::string PageHeader(const Digest& chain_after) {
  std::string header(1, kPage);
  AddBytes(header, std::as_bytes(std::span(chain_after)));
  return header;
}

std::string StateHeader(const Digest& chain_before, const std::span<const TokenId> tail) {
  std::string header(1, kState);
  AddBytes(header, std::as_bytes(std::span(chain_before)));
  AddTail(header, tail);
  return header;
}

std::string DirectoryHeader(const std::span<const TokenId> tail) {
  std::string header(1, kDirectory);
  AddTail(header, tail);
  return header;
}

bool IsPageHeader(const std::string_view header) { return header.starts_with(kPage); }

std::optional<StateName> ReadStateHeader(std::string_view header) {
  if (!header.starts_with(kState)) return std::nullopt;
  header.remove_prefix(1);
  const std::optional<Digest> chain = TakeDigest(header);
  if (!chain.has_value()) return std::nullopt;
  std::optional<std::vector<TokenId>> tail = TakeTail(header);
  if (!tail.has_value() || !header.empty()) return std::nullopt;
  return StateName{*chain, *std::move(tail)};
}

std::optional<std::vector<std::vector<TokenId>>> ReadDirectoryHeader(std::string_view header) {
  if (!header.starts_with(kDirectory)) return std::nullopt;
  header.remove_prefix(1);
  std::vector<std::vector<TokenId>> tails;
  while (!header.empty()) {
    std::optional<std::vector<TokenId>> tail = TakeTail(header);
    if (!tail.has_value()) return std::nullopt;
    tails.push_back(*std::move(tail));
  }
  return tails;
}

std::string MergeDirectories(const std::string_view there, const std::string_view ours) {
  const auto theirs = ReadDirectoryHeader(there);
  const auto added = ReadDirectoryHeader(ours);
  if (!theirs.has_value() || !added.has_value()) return std::string(ours);
  std::string out(ours);
  // From the last on: what came last is what is left where not all fit.
  for (auto tail = theirs->rbegin(); tail != theirs->rend(); ++tail) {
    if (std::find(added->begin(), added->end(), *tail) != added->end()) continue;
    std::string longer = out;
    AddTail(longer, *tail);
    if (static_cast<int64_t>(longer.size()) > kTierHeaderBytesMax) break;
    out = std::move(longer);
  }
  return out;
}

}  // namespace invar::cache
