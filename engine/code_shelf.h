// CodeShelf: codes of whole prefixes that went out, kept in case somebody asks for the same again: codes are made of
// what layers read, which no cache holds, so without them a prompt that many fetch would be run for each. The least
// recently used ones go first. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/fingerprint.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "cache/scope.h"
#include "engine/scd_profiles.h"

namespace invar::engine {

class CodeShelf {
 public:
  using Codes = std::vector<std::vector<std::byte>>;  // Of each layer.

  explicit CodeShelf(const int64_t bytes_max) : bytes_max_(bytes_max) {}

  // What names a prefix in codes. Time: SHA-256 of four bytes a token, 0.6 ms for a prompt of 262,144 where the
  // processor has instructions for it (2 ms where not), so that quotes can take it on gRPC's thread.
  static Digest KeyOf(const CodedExport& coded, const cache::Scope& scope, std::span<const TokenId> tokens);

  // `flushes`: of the tenant's prefixes, now and when the codes' prefix began to run: what was run before a flush is
  // forgotten with it. Find is one look-up, whatever lies there: null, or what stays as it is though it leaves the
  // shelf.
  std::shared_ptr<const Codes> Find(const Digest& key, int64_t flushes);
  bool Has(const Digest& key, int64_t flushes) const;
  void Put(const Digest& key, int64_t flushes, Codes codes);

  int64_t bytes() const;

 private:
  struct Entry {
    Digest key;
    int64_t flushes = 0;
    int64_t bytes = 0;
    std::shared_ptr<const Codes> codes;  // Those who send them have them too.
  };
  void Drop(std::list<Entry>::iterator entry) REQUIRES_LOCK(mu_);

  const int64_t bytes_max_;

  mutable Mutex mu_;
  std::list<Entry> entries_ GUARDED_BY(mu_);  // The last used first.
  std::map<Digest, std::list<Entry>::iterator> by_key_ GUARDED_BY(mu_);
  int64_t bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace invar::engine
