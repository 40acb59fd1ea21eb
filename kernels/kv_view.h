// How attention reads a sequence's KV: pages of 64 positions, named by a page table, in one arena.
// Inside a page the layout belongs to the backend (Backend::KvPageShape).
// A compressed view stands slots where the full one has positions: a body of whole pages in some encoding, made from
// many positions, then ordinary pages for what came after. Keys are stored rotated, so a slot needs no position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kv_encoding.h"

namespace invar::kernels {

// The first slots of one layer of a compressed view.
struct KvBody {
  const std::byte* bytes = nullptr;  // Page after page as EncodePage() writes them, contiguous.
  int32_t pages = 0;
  KvEncoding encoding = KvEncoding::kDense;
  // ln of how many positions a slot stands for, [pages][kv_heads][64]; null: one each.
  const float* log_degrees = nullptr;
};

// One layer of one sequence. Slot s of the body lies in its page s / 64; position (or slot) p behind it in page
// `pages[p / 64 - body.pages]`, place p % 64.
struct KvView {
  std::byte* arena = nullptr;
  int64_t page_stride_bytes = 0;   // From page to page in the arena (all layers).
  int64_t layer_offset_bytes = 0;  // Of this layer inside a page.
  std::span<const int32_t> pages;  // Covers positions [64 * body.pages, last position of the span].
  KvBody body = {};

  // Of block `index`, which lies behind the body.
  std::byte* page(const int64_t index) const {
    return arena + static_cast<int64_t>(pages[index - body.pages]) * page_stride_bytes + layer_offset_bytes;
  }
};

}  // namespace invar::kernels
