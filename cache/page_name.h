// PageName: what the tiers call a whole page of a prefix. It is made of all tokens up to the page's end
// (cache/tiers/prefix_keys.h), so who has worked it out leaves it with the node (cache/tree/radix_tree.h).
#pragma once

#include <array>
#include <cstddef>

#include "base/fingerprint.h"

namespace invar::cache {

struct PageName {
  Digest chain{};                   // After the page.
  std::array<std::byte, 32> key{};  // A TierKey: of its record.
};

}  // namespace invar::cache
