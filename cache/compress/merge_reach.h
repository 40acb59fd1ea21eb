// Which slots may be merged. Slots of several tokens lie in the body, which is whole pages: so merging begins from
// whole pages and takes whole pages away, and the sinks and the latest tokens stay out of it.
//
//   slots   | sinks | in reach of merging            | recent |
//   pages   | whole pages: body                      | tail   |
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/compress/settled_slots.h"
#include "cache/compressor.h"

namespace invar::cache {

struct MergeReach {
  int64_t begin = 0;
  int64_t end = 0;  // Not above begin where there is nothing to merge.

  int64_t count() const { return end - begin; }
  // Slots that go so that `above` do: the whole pages that are enough, or as many as there are with `left` slots kept.
  int64_t Going(const int64_t above, const int64_t left) const {
    constexpr int64_t kPage = kernels::kEncodedPageSlots;
    const int64_t most = std::max<int64_t>(0, count() - left) / kPage * kPage;
    return std::clamp<int64_t>((above + kPage - 1) / kPage * kPage, 0, most);
  }
};

// Of the latest tokens as many stay out of reach as it takes that whole pages are before them.
inline MergeReach ReachOf(const SettledSlots& slots, const CompressorTraits& traits) {
  const int64_t spare = slots.count() - traits.recent;
  if (spare <= 0) return {};
  return {.begin = std::max<int64_t>(0, traits.sinks - slots.before()),
          .end = spare / kernels::kEncodedPageSlots * kernels::kEncodedPageSlots};
}

}  // namespace invar::cache
