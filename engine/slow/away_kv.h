// AwayKv: the oldest whole pages of one sequence's full KV, as they lie in the slow store. Layer by layer, so that a
// layer of all pages is one read (of each extent): a page of the pool is cut into its layers' parts, and a part of all
// pages lies side by side, in the backend's own order.
//
//   pages      0 .......... pages() ....... written() ........... what the sequence holds
//   lie in     store only   | store and pool | pool only
//
//   extent     part 0 of its pages | part 1 | ... , each at a whole block; full ones never change, new pages get new
//   ones
//
// While the page cache has all that was written, a part is read where it lies: its extents are mapped side by side.
// What never left memory is believed like memory. What is copied from the file is held against a checksum of each page
// of each part: what comes back damaged is noticed, and computed again.
// Threads: engine thread only, but Part: any, while nothing is appended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/slow/block_buffer.h"
#include "engine/slow/mapped_range.h"
#include "engine/slow/slow_store.h"
#include "models/model.h"

namespace invar::engine {

// How a page of the model is cut: a part for each attention layer, then what lies behind them (the multi-token head's).
// A model that does not say where its layers lie (of hashes) has them side by side.
struct PageParts {
  explicit PageParts(const models::ModelSpec& spec);

  size_t count() const { return offsets_bytes.size(); }
  int64_t bytes(const size_t part) const {
    return (part + 1 < count() ? offsets_bytes[part + 1] : page_bytes) - offsets_bytes[part];
  }

  // Whether every part of a page is whole blocks, which can be mapped wherever they lie.
  bool are_blocks() const;

  int64_t page_bytes = 0;
  int32_t pages_max = 0;  // Of a sequence.
  size_t layers = 0;
  std::vector<int64_t> offsets_bytes;
};

class AwayKv {
 public:
  // `expected`: pages that will be written soon, which so come to lie side by side. Requires: both outlive it.
  AwayKv(SlowStore& store, const PageParts& parts, int32_t expected);

  int32_t pages() const { return pages_; }
  int32_t written() const { return written_; }
  const PageParts& parts() const { return parts_; }
  int64_t PartBytes(const size_t part) const { return parts_.bytes(part) * written_; }

  // The next pages of the sequence; each entry is where one begins. Errors: RESOURCE_EXHAUSTED (budget or disk), those
  // of the store; written() says how many were appended.
  Status Append(std::span<const std::byte* const> pages);
  // The first `pages` of those written lie in the store only from now on.
  void SetPages(int32_t pages);

  // `part` of all written pages: where it lies in the page cache, valid until pages are appended, or else in `into`.
  // `bounce`: the reader's own, for extents that do not come to lie at whole blocks. Errors: DATA_LOSS (a page is not
  // what was written), those of the store.
  StatusOr<const std::byte*> Part(size_t part, BlockBuffer& into, BlockBuffer& bounce) const;
  // Whether Part would give all of it in place and at once: nothing has to be read, or held against its checksum.
  bool IsInMemory() const;
  // Requires: IsInMemory().
  const std::byte* InPlace(const size_t part) const { return mapped_.data() + mapped_offsets_[part]; }

 private:
  struct Extent {
    SlowStore::Range range;
    int32_t capacity = 0;  // In pages.
    int32_t used = 0;
    std::vector<int64_t> part_offsets;  // In the range.
    std::vector<uint64_t> sums;         // [parts][capacity]
  };
  Status Grow(int32_t pages);
  void Map(const Extent& extent);
  bool IsInMemory(size_t part) const;
  Status CheckSums(size_t part, const std::byte* pages) const;

  // Set at construction.
  SlowStore& store_;
  const PageParts& parts_;
  const int32_t expected_;

  std::vector<Extent> extents_;
  int32_t pages_ = 0;
  int32_t written_ = 0;
  BlockBuffer gathered_;  // What is written at once.
  // Room of addresses for all the pages that it can come to, part after part; empty: it is read by copying.
  MappedRange mapped_;
  std::vector<int64_t> mapped_offsets_;
};

}  // namespace invar::engine
