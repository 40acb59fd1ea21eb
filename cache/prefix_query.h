// PrefixQuery: what a sequence that begins asks of the cache.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "cache/prefix_entry.h"
#include "cache/scope.h"

namespace invar::cache {

struct PrefixQuery {
  Scope scope;
  std::span<const TokenId> tokens;  // Everything known of the sequence.
  int32_t prompt_tokens = 0;
  int32_t stable_tokens = 0;  // End of the part that a follow-up will repeat; 0: not known, all of the prompt.
  int32_t resume_limit = 0;   // Positions from here on must run: at most tokens - 1.
  // Of a sequence that goes on after a preemption: what it came with. Null: it is new.
  const PrefixEntry* entry = nullptr;
  bool read = true;                     // Use what is there.
  bool write = true;                    // Leave something.
  std::span<const int32_t> hints = {};  // Where the caller wants checkpoints.
};

// The end of what a follow-up will repeat of the prompt.
inline int32_t StableEnd(const PrefixQuery& query) {
  return query.stable_tokens > 0 ? query.stable_tokens : query.prompt_tokens - 1;
}

}  // namespace invar::cache
