// How compressors change what is settled in a view: the one way into a CompressedLayer's body.
#pragma once

#include "cache/compress/settled_slots.h"
#include "cache/compressed_layer.h"
#include "cache/compressor.h"

namespace invar::cache {

class LayerWriter {
 public:
  // `merges`: whether slots of the view may stand for several tokens.
  LayerWriter(CompressedLayer& layer, const bool merges) : layer_(layer) { layer_.merges_ = merges; }

  // The first tokens of an empty view, all settled: whole pages into the body, at least `recent` rows into the tail.
  void Fill(int64_t tokens, const RowsReader& read, int64_t recent);
  // Settles tokens below `verified` without dropping any: what lies more than `recent` before goes from the tail into
  // the body, by whole pages. What the body holds stays as it is.
  void Promote(int64_t verified, int64_t recent);
  // The slots of a prompt that nothing was dropped from.
  static SettledSlots Gather(const kernels::PageShape& shape, int64_t tokens, const RowsReader& read,
                             std::pmr::memory_resource* scratch);
  // The slots of tokens below `verified` from page `first_page` on, decoded.
  SettledSlots Take(int64_t verified, int64_t first_page) const;
  // Puts them into the view in the place of what it held of their tokens; older pages stay. Whole pages into the body,
  // at least `recent` slots (of degree 1) into the tail.
  void Put(SettledSlots& slots, int64_t recent);
  // Ends a round.
  void EndRound(int64_t missed_slots);

 private:
  int64_t SettledTail(int64_t verified) const { return layer_.tail_slots() - (layer_.tokens_ - verified); }
  // Encodes 64 * pages slots. mark(h, slot).
  template <typename Mark>
  void AddPages(const kernels::ConstKvRows& rows, int64_t pages, const Mark& mark);
  template <typename Mark>
  void AddTail(const kernels::ConstKvRows& rows, const Mark& mark);
  void DropTail(int64_t slots);  // The first ones.

  CompressedLayer& layer_;
};

}  // namespace invar::cache
