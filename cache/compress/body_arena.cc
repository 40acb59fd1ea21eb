// Layers are made on several threads at once, a few blocks each: one lock, and a walk over the free places, which are
// fewer than layers.
#include "cache/body_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace invar::cache {
namespace {

constexpr int64_t kMemoryPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;
// Address space only: the system backs what is touched.
constexpr int64_t kRegionBytes = int64_t{64} << 20;

int64_t RoundUp(const int64_t a, const int64_t to) { return (a + to - 1) / to * to; }

// Address space that begins with a huge page.
std::byte* Map(const int64_t bytes) {
  const int64_t with_slack = bytes + kHugePage;
  void* const mapped = mmap(nullptr, static_cast<size_t>(with_slack), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Check(mapped != MAP_FAILED, "the system gives address space for compressed views; lower engine.kv_budget", bytes);
  auto* const begin = static_cast<std::byte*>(mapped);
  const int64_t before = RoundUp(static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin)), kHugePage) -
                         static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin));
  if (before > 0) munmap(begin, static_cast<size_t>(before));
  if (before < kHugePage) munmap(begin + before + bytes, static_cast<size_t>(kHugePage - before));
  madvise(begin + before, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // Fails without harm: small pages then.
  return begin + before;
}

}  // namespace

BodyArena::~BodyArena() { Check(regions_.empty(), "blocks of an arena come back before it goes", regions_.size()); }

void* BodyArena::do_allocate(const size_t bytes, const size_t alignment) {
  if (static_cast<int64_t>(bytes) < kLeastBlock) {
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  Check(alignment <= kMemoryPage, "blocks begin with a memory page", alignment);
  const int64_t size = RoundUp(static_cast<int64_t>(bytes), kMemoryPage);
  const MutexLock lock(mu_);
  const auto take = [size](Region& region) -> std::byte* {
    const auto place = std::find_if(region.free.begin(), region.free.end(),
                                    [size](const auto& entry) { return entry.second >= size; });
    if (place == region.free.end()) return nullptr;
    const auto [offset, room] = *place;
    region.free.erase(place);
    if (room > size) region.free.emplace(offset + size, room - size);
    return region.base + offset;
  };
  for (Region& region : regions_) {
    if (std::byte* const block = take(region)) return block;
  }
  const int64_t room = RoundUp(std::max(size, kRegionBytes), kHugePage);
  regions_.push_back({.base = Map(room), .bytes = room, .free = {{0, room}}});
  return take(regions_.back());
}

void BodyArena::do_deallocate(void* const block, const size_t bytes, const size_t alignment) {
  if (static_cast<int64_t>(bytes) < kLeastBlock) {
    return std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
  }
  auto* const at = static_cast<std::byte*>(block);
  const MutexLock lock(mu_);
  const auto region = std::find_if(regions_.begin(), regions_.end(), [at](const Region& candidate) {
    return at >= candidate.base && at < candidate.base + candidate.bytes;
  });
  Check(region != regions_.end(), "a block goes back to the arena that it is of");
  auto [place, is_new] = region->free.emplace(at - region->base, RoundUp(static_cast<int64_t>(bytes), kMemoryPage));
  Check(is_new, "a block comes back once", at - region->base);
  if (const auto next = std::next(place); next != region->free.end() && place->first + place->second == next->first) {
    place->second += next->second;
    region->free.erase(next);
  }
  if (place != region->free.begin()) {
    const auto before = std::prev(place);
    if (before->first + before->second == place->first) {
      before->second += place->second;
      region->free.erase(place);
      place = before;
    }
  }
  if (place->second < region->bytes) return;
  munmap(region->base, static_cast<size_t>(region->bytes));
  regions_.erase(region);
}

int64_t BodyArena::used_bytes() const {
  const MutexLock lock(mu_);
  int64_t bytes = 0;
  for (const Region& region : regions_) {
    bytes += region.bytes;
    for (const auto& [offset, room] : region.free) bytes -= room;
  }
  return bytes;
}

int64_t BodyArena::reached_bytes() const {
  const MutexLock lock(mu_);
  int64_t bytes = 0;
  for (const Region& region : regions_) {
    const auto last = region.free.empty() ? region.free.end() : std::prev(region.free.end());
    const bool ends_free = last != region.free.end() && last->first + last->second == region.bytes;
    bytes += ends_free ? last->first : region.bytes;
  }
  return bytes;
}

void BodyArena::CheckIntegrity() const {
  const MutexLock lock(mu_);
  for (const Region& region : regions_) {
    int64_t end = -1;
    for (const auto& [offset, room] : region.free) {
      Check(offset > end && room > 0 && offset % kMemoryPage == 0, "free places are apart and in order", offset, end);
      end = offset + room;
    }
    Check(end <= region.bytes, "free places lie in their region", end, region.bytes);
    Check(region.free.size() != 1 || region.free.begin()->second < region.bytes, "a region has blocks");
  }
}

}  // namespace invar::cache
