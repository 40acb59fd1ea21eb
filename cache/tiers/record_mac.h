// RecordMac: HMAC-SHA-256 with the deployment's secret over everything a shared server keeps for us, so that who can
// write there, but does not know the secret, can cost us hits and nothing else.
// Every MAC covers the store id (model fingerprint, numerics) and the key: no entry passes for another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fingerprint.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

using Mac = Digest;

// Threads: any.
class RecordMac {
 public:
  RecordMac(std::string_view secret, std::string_view store_id);
  ~RecordMac();
  RecordMac(const RecordMac&) = delete;
  RecordMac& operator=(const RecordMac&) = delete;

  // Where a record's head lies: who reads the server's keys cannot try prompts against them.
  Mac OfName(const TierKey& key) const;
  Mac OfHead(const TierKey& key, std::span<const std::byte> head) const;
  // Where the era of some spaces lies.
  Mac OfSpaces(const TierSpaces& spaces) const;
  Mac OfChunk(const TierKey& key, int64_t chunk, std::span<const std::byte> bytes) const;

 private:
  struct Keyed;
  Mac Compute(char domain, const TierKey& key, int64_t index, std::span<const std::byte> bytes) const;

  const Digest store_;
  const std::unique_ptr<Keyed> keyed_;
};

}  // namespace invar::cache
