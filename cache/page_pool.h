// The pages of attention KV: fixed in number, each for kPageTokens positions of one sequence, all attention layers.
#pragma once

#include "cache/block_pool.h"

namespace invar::cache {

using PagePool = BlockPool<PageId>;
using PageRef = BlockRef<PageId>;

}  // namespace invar::cache
