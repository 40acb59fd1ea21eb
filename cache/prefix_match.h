// Plain words about a prefix that the engine, the cache and their reports share.
#pragma once

#include <cstdint>

namespace invar::cache {

// Why a checkpoint lies where it lies.
enum class CheckpointKind : uint8_t {
  kPromptEnd,  // End of the prompt's stable part.
  kEnd,        // Where a request ended.
  kBranch,     // KV matched deeper than state did: a shared prefix ends here.
  kHint,       // The caller said so.
  kPlanned,    // The placement policy, from what earlier requests reused.
  kPreempted,  // Where a sequence was interrupted.
  kBrought,    // From a tier or another instance: why it was made there is not known.
};
inline constexpr int kCheckpointKinds = 7;

struct CheckpointPlace {
  int32_t at = 0;  // After so many tokens.
  CheckpointKind kind = CheckpointKind::kEnd;
};

// What a sequence of tokens finds in the cache.
struct PrefixMatch {
  int32_t kv_tokens = 0;     // Positions whose KV is there: shared, not written again.
  int32_t state_tokens = 0;  // The first position that runs; all before are in the recurrent state.
};

}  // namespace invar::cache
