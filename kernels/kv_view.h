// How attention reads a sequence's KV: pages of 64 positions, named by a page table, in one arena.
// Inside a page the layout belongs to the backend (Backend::KvPageBytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace invar::kernels {

// One layer of one sequence. Position p lies in page `pages[p / 64]`, place p % 64.
struct KvView {
  std::byte* arena = nullptr;
  int64_t page_stride_bytes = 0;   // From page to page in the arena (all layers).
  int64_t layer_offset_bytes = 0;  // Of this layer inside a page.
  std::span<const int32_t> pages;  // Covers positions [0, last position of the span].

  std::byte* page(const int64_t index) const {
    return arena + static_cast<int64_t>(pages[index]) * page_stride_bytes + layer_offset_bytes;
  }
};

}  // namespace invar::kernels
