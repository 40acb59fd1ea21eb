// Writing gathers, reading checks.
#include "engine/slow/away_kv.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace invar::engine {
namespace {

// What comes after the first extent comes page by page: an extent more for a quarter of what there is, so that a layer
// stays a few reads.
constexpr int32_t kGrowthShare = 4;
constexpr int32_t kGrowthPagesMin = 4;

uint64_t SumOf(const std::byte* const bytes, const int64_t count) {
  return XXH3_64bits(bytes, static_cast<size_t>(count));
}

}  // namespace

PageParts::PageParts(const models::ModelSpec& spec)
    : page_bytes(spec.page_bytes),
      layers(spec.attention.page_offsets_bytes.size()),
      offsets_bytes(spec.attention.page_offsets_bytes) {
  Check(std::is_sorted(offsets_bytes.begin(), offsets_bytes.end()), "layers lie in a page in their order");
  if (layers == 0) return;
  // All attention layers have one shape; what follows the last is the head's.
  const int64_t layer_bytes = layers > 1 ? bytes(0) : page_bytes / (spec.mtp.served() ? 2 : 1);
  if (offsets_bytes.back() + layer_bytes < page_bytes) offsets_bytes.push_back(offsets_bytes.back() + layer_bytes);
}

Status AwayKv::Grow(const int32_t pages) {
  const int32_t capacity = extents_.empty() ? pages : std::max({pages, written_ / kGrowthShare, kGrowthPagesMin});
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  for (size_t part = 0; part < parts_.count(); ++part) {
    offsets.push_back(bytes);
    bytes += WholeBlocks(parts_.bytes(part) * capacity);
  }
  std::optional<SlowStore::Range> range = store_.Take(bytes);
  if (!range.has_value()) return ResourceExhausted("engine.speculation.slow_tier.budget is used up");
  extents_.push_back({.range = *std::move(range),
                      .capacity = capacity,
                      .part_offsets = std::move(offsets),
                      .sums = std::vector<uint64_t>(parts_.count() * static_cast<size_t>(capacity))});
  return OkStatus();
}

Status AwayKv::Append(std::span<const std::byte* const> pages) {
  if (extents_.empty() || extents_.back().used == extents_.back().capacity) {
    if (Status s = Grow(static_cast<int32_t>(pages.size())); !s.ok()) return s;
  }
  while (!pages.empty()) {
    Extent& extent = extents_.back();
    const auto count = std::min(pages.size(), static_cast<size_t>(extent.capacity - extent.used));
    for (size_t part = 0; part < parts_.count(); ++part) {
      const int64_t bytes = parts_.bytes(part);
      gathered_.Reserve(bytes * static_cast<int64_t>(count));
      for (size_t p = 0; p < count; ++p) {
        std::byte* const to = gathered_.data() + static_cast<int64_t>(p) * bytes;
        std::memcpy(to, pages[p] + parts_.offsets_bytes[part], static_cast<size_t>(bytes));
        extent.sums[part * extent.capacity + extent.used + p] = SumOf(to, bytes);
      }
      const int64_t offset = extent.range.offset() + extent.part_offsets[part] + bytes * extent.used;
      if (Status s = store_.Write(offset, {gathered_.data(), static_cast<size_t>(bytes) * count}); !s.ok()) return s;
    }
    extent.used += static_cast<int32_t>(count);
    written_ += static_cast<int32_t>(count);
    pages = pages.subspan(count);
    if (pages.empty()) break;
    if (Status s = Grow(static_cast<int32_t>(pages.size())); !s.ok()) return s;
  }
  return OkStatus();
}

void AwayKv::SetPages(const int32_t pages) {
  Check(pages >= 0 && pages <= written_, "only what was written is away", pages, written_);
  pages_ = pages;
}

Status AwayKv::ReadPart(const size_t part, std::byte* to, BlockBuffer& bounce) const {
  const int64_t page_bytes = parts_.bytes(part);
  for (const Extent& extent : extents_) {
    const int64_t bytes = page_bytes * extent.used;
    const int64_t offset = extent.range.offset() + extent.part_offsets[part];
    const bool aligned = reinterpret_cast<uintptr_t>(to) % kBlockBytes == 0;
    if (!aligned) bounce.Reserve(bytes);
    // Whatever fills the last block goes where the next extent comes, or behind them all.
    std::byte* const into = aligned ? to : bounce.data();
    if (Status s = store_.Read(offset, bytes, into); !s.ok()) return s;
    if (!aligned) std::memcpy(to, into, static_cast<size_t>(bytes));
    for (int32_t p = 0; p < extent.used; ++p) {
      if (SumOf(to + page_bytes * p, page_bytes) != extent.sums[part * extent.capacity + p]) {
        return DataLoss("KV in engine.speculation.slow_tier.path is not what was written there");
      }
    }
    to += bytes;
  }
  return OkStatus();
}

}  // namespace invar::engine
