// Writing gathers, reading checks.
#include "engine/slow/away_kv.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/numerics.h"

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
  pages_max = (spec.max_sequence_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens;
  Check(std::is_sorted(offsets_bytes.begin(), offsets_bytes.end()), "layers lie in a page in their order");
  for (int32_t layer = 0; layers == 0 && layer < spec.attention_layers; ++layer) {
    offsets_bytes.push_back(page_bytes / spec.attention_layers * layer);
  }
  if (layers == 0) {
    layers = offsets_bytes.size();
    return;
  }
  // All attention layers have one shape; what follows the last is the head's.
  const int64_t layer_bytes = layers > 1 ? bytes(0) : page_bytes / (spec.mtp.served() ? 2 : 1);
  if (offsets_bytes.back() + layer_bytes < page_bytes) offsets_bytes.push_back(offsets_bytes.back() + layer_bytes);
}

bool PageParts::are_blocks() const {
  return page_bytes % kBlockBytes == 0 &&
         std::all_of(offsets_bytes.begin(), offsets_bytes.end(), [](const int64_t o) { return o % kBlockBytes == 0; });
}

AwayKv::AwayKv(SlowStore& store, const PageParts& parts, const int32_t expected)
    : store_(store), parts_(parts), expected_(expected) {
  if (!store_.maps() || !parts_.are_blocks()) return;
  int64_t bytes = 0;
  for (size_t part = 0; part < parts_.count(); ++part) {
    mapped_offsets_.push_back(bytes);
    bytes += parts_.bytes(part) * parts_.pages_max;
  }
  mapped_ = MappedRange(bytes);
}

Status AwayKv::Grow(const int32_t pages) {
  const int32_t least = extents_.empty() ? expected_ : std::max(written_ / kGrowthShare, kGrowthPagesMin);
  const int32_t capacity = std::max(pages, std::min(least, parts_.pages_max - written_));
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
  Map(extents_.back());
  return OkStatus();
}

void AwayKv::Map(const Extent& extent) {
  for (size_t part = 0; part < parts_.count() && mapped_.data() != nullptr; ++part) {
    std::byte* const at = mapped_.data() + mapped_offsets_[part] + parts_.bytes(part) * written_;
    const int64_t offset = extent.range.offset() + extent.part_offsets[part];
    if (!store_.MapAt(at, offset, parts_.bytes(part) * extent.capacity)) mapped_ = MappedRange();
  }
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

StatusOr<const std::byte*> AwayKv::Part(const size_t part, BlockBuffer& into, BlockBuffer& bounce) const {
  if (IsInMemory(part)) return InPlace(part);
  into.Reserve(PartBytes(part) + kBlockBytes);
  std::byte* to = into.data();
  for (const Extent& extent : extents_) {
    const int64_t bytes = parts_.bytes(part) * extent.used;
    const int64_t offset = extent.range.offset() + extent.part_offsets[part];
    const bool aligned = reinterpret_cast<uintptr_t>(to) % kBlockBytes == 0;
    if (!aligned) bounce.Reserve(bytes);
    // Whatever fills the last block goes where the next extent comes, or behind them all.
    std::byte* const read_into = aligned ? to : bounce.data();
    if (Status s = store_.Read(offset, bytes, read_into); !s.ok()) return s;
    if (!aligned) std::memcpy(to, read_into, static_cast<size_t>(bytes));
    to += bytes;
  }
  if (Status s = CheckSums(part, into.data()); !s.ok()) return s;
  return into.data();
}

Status AwayKv::CheckSums(const size_t part, const std::byte* pages) const {
  const int64_t bytes = parts_.bytes(part);
  for (const Extent& extent : extents_) {
    for (int32_t p = 0; p < extent.used; ++p, pages += bytes) {
      if (SumOf(pages, bytes) != extent.sums[part * extent.capacity + p]) {
        return DataLoss("KV in engine.speculation.slow_tier.path is not what was written there");
      }
    }
  }
  return OkStatus();
}

bool AwayKv::IsInMemory(const size_t part) const {
  if (mapped_.data() == nullptr || store_.reads_disk()) return false;
  if (mapped_.IsInMemory(InPlace(part), PartBytes(part))) return true;
  store_.SetReadsDisk();
  return false;
}

bool AwayKv::IsInMemory() const {
  for (size_t part = 0; part < parts_.count(); ++part) {
    if (!IsInMemory(part)) return false;
  }
  return true;
}

}  // namespace invar::engine
