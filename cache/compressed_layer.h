// CompressedLayer: the lossy view of one attention layer of one sequence, as a value.
//
//   slots   | body: whole pages of 64 slots in one encoding | tail: dense rows, exact as the full KV has them |
//   tokens    some of [0, settled), merged or dropped          .. settled) | [settled, tokens): provisional
//
// Every KV head has the same number of slots, each head its own choice of them. A slot stands for `degree` tokens; its
// key is as it was after rope, so attention needs no positions: logit = scale q.k + log(degree), nothing added at 1.
// Rows of the body are what its bytes decode to (kernels/kv_encoding.h); in the tail every degree is 1.
//
// Ways in: Compressor::Prefill makes one; Append adds provisional rows; Truncate and ReplaceTail bring them in line
// with what was verified; Compressor::Maintain alone changes what is settled. So a round is Append* -> Truncate ->
// ReplaceTail -> Maintain. Copying is a copy of all bytes.
// Threads: one at a time, as any value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "base/fingerprint.h"
#include "base/status.h"
#include "kernels/kv_encoding.h"

namespace invar::cache {

// What a slot stands for.
struct SlotMark {
  uint32_t position = 0;  // Of its token in the sequence; of the one that took the others in where several were merged.
  uint32_t degree : 30;   // Tokens it stands for, at least 1.
  uint32_t is_judged : 1;   // Whether it has been decided if the slot is an outlier (merging kinds).
  uint32_t is_outlier : 1;  // Never merged.

  SlotMark(const uint32_t at = 0, const uint32_t tokens = 1)  // NOLINT: implicit.
      : position(at), degree(tokens), is_judged(0), is_outlier(0) {}
  bool operator==(const SlotMark&) const = default;
};
static_assert(sizeof(SlotMark) == 8);

// Of the float that attention adds to a slot's logit, where slots may stand for several tokens.
inline constexpr int64_t kLogDegreeBytes = 4;

class CompressedLayer {
 public:
  // `bodies`: where the body lies; outlives this. A copy's lies on the heap, a moved layer keeps its own.
  CompressedLayer(const kernels::PageShape& shape, kernels::KvEncoding encoding, std::string provenance,
                  std::pmr::memory_resource* bodies = std::pmr::new_delete_resource());

  const kernels::PageShape& shape() const { return shape_; }
  kernels::KvEncoding encoding() const { return encoding_; }     // Of the body.
  const std::string& provenance() const { return provenance_; }  // Compressor and settings that made it.

  int64_t tokens() const { return tokens_; }    // Logical length.
  int64_t settled() const { return settled_; }  // Tokens that may be gone as rows; the rest is the end of the tail.
  int64_t body_pages() const { return static_cast<int64_t>(marks_.size()) / (kernels::kEncodedPageSlots * heads()); }
  int64_t body_slots() const { return body_pages() * kernels::kEncodedPageSlots; }
  int64_t tail_slots() const { return static_cast<int64_t>(tail_marks_.size()) / heads(); }
  int64_t slots() const { return body_slots() + tail_slots(); }  // Of each KV head.
  bool has_degrees() const { return has_degrees_; }              // Whether any degree is above 1.
  int64_t rounds() const { return rounds_; }                     // Calls of Prefill and Maintain so far.
  int64_t missed_slots() const { return missed_slots_; }         // Above the budget after the last of them.

  // Page `index` of the body: EncodedPageBytes().
  std::span<const std::byte> page(int64_t index) const;
  // [kv_heads][64], slot order is token order in each head.
  std::span<const SlotMark> page_marks(int64_t index) const;
  // The tail's rows, slot by slot; valid until the layer changes.
  kernels::ConstKvRows tail() const;
  // [tail_slots][kv_heads]
  std::span<const SlotMark> tail_marks() const { return tail_marks_; }

  // What the view takes where attention reads it: body pages, tail rows in the dense type, 4 bytes a slot and head for
  // log degrees where any slot stands for several tokens. Marks are the host's and not counted.
  int64_t bytes() const;

  // The row of token `tokens()`: provisional, exact. `row.slots` >= 1 rows in order of tokens.
  void Append(const kernels::ConstKvRows& rows);
  // Forgets the rows of tokens [length, tokens()). Cost: O(rows forgotten). Requires: settled() <= length <= tokens().
  void Truncate(int64_t length);
  // Verified rows of tokens [from, from + rows.slots) overwrite the provisional ones.
  // Requires: settled() <= from, from + rows.slots <= tokens().
  void ReplaceTail(int64_t from, const kernels::ConstKvRows& rows);

  // Everything, as bytes with a checksum; the layout stands in compress/compressed_layer.cc. Equal layers give equal
  // bytes.
  std::vector<std::byte> Export() const;
  // Errors: DATA_LOSS where the bytes are not what Export gave, FAILED_PRECONDITION where they were made by another
  // compressor or settings than `provenance` or for another shape.
  static StatusOr<CompressedLayer> Import(std::span<const std::byte> bytes, const kernels::PageShape& shape,
                                          const std::string& provenance);
  // SHA-256 of what Export gives.
  Digest ContentHash() const;

  // Recounts everything: sizes, order of positions, sum of degrees (of merging kinds: settled()). Stops the process.
  void CheckIntegrity() const;

  bool operator==(const CompressedLayer&) const = default;

 private:
  friend class LayerWriter;  // cache/compress/layer_writer.h: how compressors change what is settled.

  int64_t heads() const { return shape_.kv_heads; }
  int64_t row_floats() const { return heads() * shape_.head_dim; }
  // The first fault found, or null. Cheap: no look at rows.
  const char* Fault() const;

  kernels::PageShape shape_;
  kernels::KvEncoding encoding_;
  std::string provenance_;
  bool merges_ = false;
  bool has_degrees_ = false;
  int64_t tokens_ = 0;
  int64_t settled_ = 0;
  int64_t rounds_ = 0;
  int64_t missed_slots_ = 0;
  std::pmr::vector<std::byte> pages_;
  std::vector<SlotMark> marks_;       // [body pages][kv_heads][64]
  std::vector<float> tail_keys_;      // [tail_slots][kv_heads][dim]
  std::vector<float> tail_values_;    // Alike.
  std::vector<SlotMark> tail_marks_;  // [tail_slots][kv_heads]
};

}  // namespace invar::cache
