// THE resume rule: where a sequence goes on that finds a part of its tokens in the tree.
#pragma once

#include <cstdint>

#include "cache/tree/radix_tree.h"

namespace invar::cache {

struct ResumePoint {
  PrefixMatch match;
  Node* from = nullptr;  // Whose checkpoint is the state; null: from nothing, or there is no state to restore.
};

// The deepest checkpoint that lies within the shared KV and at most at `limit`, so that positions from `limit` on run
// (their logits are wanted: at least the last token's, `limit` <= tokens - 1). Without recurrent layers every position
// can be resumed. A checkpoint at `limit` + 1 or later is passed over for the next shallower one.
ResumePoint Resume(const Match& match, int32_t limit, bool has_state);

}  // namespace invar::cache
