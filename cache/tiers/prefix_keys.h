// What the records of prefixes are called, whose they are and what their headers say. Keys chain SHA-256 over pages of
// tokens, so one walk gives all of them:
//   chain(0) = hash(model, numerics, tenant, salt, provenance), chain(i + 1) = hash(chain(i), tokens of page i)
// A page's record hangs on the chain after it, a state's on the chain before its page and the tokens in it. A directory
// says which states hang on a chain, for who shares a tier and cannot list it. Headers:
//   page       P, chain after it
//   state      S, chain before its page, tail: count of tokens, the tokens
//   directory  D, tails
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fingerprint.h"
#include "base/ids.h"
#include "cache/flush.h"
#include "cache/page_name.h"
#include "cache/scope.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

// Before the first page. `identity`: model fingerprint and numerics id.
Digest ChainStart(const std::string& identity, const Scope& scope);
// Of the page of `tokens` after `chain_before`.
PageName NameOfPage(const Digest& chain_before, std::span<const TokenId> tokens);
// After no page, one, two ... and all whole pages of `tokens`.
std::vector<Digest> ChainOf(const std::string& identity, const Scope& scope, std::span<const TokenId> tokens);

TierKey PageKey(const Digest& chain_after);
TierKey StateKey(const Digest& chain_before, std::span<const TokenId> tail);
TierKey DirectoryKey(const Digest& chain_before);

// Half of a space says the tenant, half of it the salt too, so that what a tenant or one of its salts left can be told
// by records alone. Never a key, so halves suffice.
TierSpace SpaceOf(const Scope& scope);
TierSpaces SpacesOf(const FlushOptions& of);

std::string PageHeader(const Digest& chain_after);
std::string StateHeader(const Digest& chain_before, std::span<const TokenId> tail);
std::string DirectoryHeader(std::span<const TokenId> tail);

struct StateName {
  Digest chain_before{};
  std::vector<TokenId> tail;
};
bool IsPageHeader(std::string_view header);
// Nothing where `header` is not of that kind.
std::optional<StateName> ReadStateHeader(std::string_view header);
std::optional<std::vector<std::vector<TokenId>>> ReadDirectoryHeader(std::string_view header);

// Both lists as one; where that is too long for a header, the first of `there` are left out. A TierMerge.
std::string MergeDirectories(std::string_view there, std::string_view ours);

}  // namespace invar::cache
