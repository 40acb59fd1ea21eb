// PrefixImage: a prefix as bytes outside of the budget, on its way to or from another place. The stages of such ways:
//   to another instance     memory -> PrefixImage (PrefixCache::CopyCached) -> frames
//   from another instance   frames -> PrefixImage -> memory (PrefixCache::Adopt)
//   to the tiers            memory -> OutgoingPrefix, borrowed (TierLink) -> records (PrefixWriter)
//   from the tiers          records -> LoadedWindow, a PrefixImage that says whose (PrefixLoader) -> memory (Adopt)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace invar::cache {

// KV of the positions up to `end` in pages from `first_page` on, and the state after `end` tokens (empty: dense
// models). What the last page holds behind `end` means nothing.
struct PrefixImage {
  int32_t first_page = 0;
  int32_t end = 0;
  std::vector<std::vector<std::byte>> pages = {};
  std::vector<std::byte> state = {};
};

}  // namespace invar::cache
