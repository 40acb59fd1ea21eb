// The slots of recurrent and convolution state: one a running sequence, all layers. Models without recurrent layers
// have slots of zero bytes, so that nothing above needs to ask.
#pragma once

#include "cache/block_pool.h"

namespace invar::cache {

using SlotPool = BlockPool<SlotId>;
using SlotRef = BlockRef<SlotId>;

}  // namespace invar::cache
