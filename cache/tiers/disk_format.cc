// See disk_format.h.
#include "cache/tiers/disk_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace invar::cache {
namespace {

constexpr std::array<char, 8> kMagic = {'I', 'N', 'V', 'R', 'E', 'C', '0', '2'};

// Over the head with its checksum field as zero.
uint64_t HeadChecksum(const std::span<std::byte> head) {
  constexpr size_t kAt = offsetof(RecordHead, checksum);
  uint64_t kept = 0;
  std::memcpy(&kept, head.data() + kAt, sizeof(kept));
  std::memset(head.data() + kAt, 0, sizeof(kept));
  const uint64_t sum = XXH3_64bits(head.data(), head.size());
  std::memcpy(head.data() + kAt, &kept, sizeof(kept));
  return sum;
}

RecordHead StartOf(const std::span<const std::byte> head) {
  RecordHead start;
  std::memcpy(&start, head.data(), sizeof(start));
  return start;
}

}  // namespace

RecordLayout::RecordLayout(const int64_t header_bytes, const int64_t payload_bytes)
    : sections((payload_bytes + kSectionBytes - 1) / kSectionBytes),
      head_bytes(WholeBlocks(static_cast<int64_t>(sizeof(RecordHead)) + sections * 8 + header_bytes)),
      file_bytes(head_bytes + WholeBlocks(payload_bytes)),
      payload_bytes_(payload_bytes) {}

int64_t RecordLayout::SectionBytes(const int64_t section) const {
  return std::min(kSectionBytes, payload_bytes_ - section * kSectionBytes);
}

BlockBuffer::BlockBuffer(const int64_t bytes)
    : bytes_(std::max(WholeBlocks(bytes), kBlockBytes)),
      data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, static_cast<size_t>(bytes_)))) {
  Check(data_ != nullptr, "memory for a buffer", bytes_);
}

void BlockBuffer::Free::operator()(std::byte* const p) const { std::free(p); }

uint64_t SectionChecksum(const std::span<const std::byte> filled_section) {
  return XXH3_64bits(filled_section.data(), filled_section.size());
}

void WriteHead(const TierRecord& record, const Digest& store, const std::span<const uint64_t> section_checksums,
               const std::span<std::byte> out) {
  RecordHead start{.magic = kMagic,
                   .checksum = 0,
                   .header_bytes = static_cast<int64_t>(record.header.size()),
                   .payload_bytes = record.payload_bytes,
                   .key = record.key,
                   .space = record.space,
                   .store = store};
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(out.data(), &start, sizeof(start));
  std::memcpy(out.data() + sizeof(start), section_checksums.data(), section_checksums.size_bytes());
  std::memcpy(out.data() + sizeof(start) + section_checksums.size_bytes(), record.header.data(), record.header.size());
  start.checksum = HeadChecksum(out);
  std::memcpy(out.data(), &start, sizeof(start));
}

StatusOr<RecordHead> ReadHeadStart(const std::span<const std::byte> first_block, const int64_t file_bytes) {
  Check(static_cast<int64_t>(first_block.size()) >= kBlockBytes, "one block");
  const RecordHead start = StartOf(first_block);
  if (start.magic != kMagic) return DataLoss("not a record");
  if (start.header_bytes < 0 || start.header_bytes > kTierHeaderBytesMax || start.payload_bytes < 0 ||
      start.payload_bytes > kTierPayloadBytesMax) {
    return DataLoss("sizes beyond the limits");
  }
  const RecordLayout layout(start.header_bytes, start.payload_bytes);
  if (layout.file_bytes != file_bytes) {
    return DataLoss(fmt::format("{} bytes instead of {}", file_bytes, layout.file_bytes));
  }
  return start;
}

Status CheckHead(const std::span<std::byte> head) {
  return HeadChecksum(head) == StartOf(head).checksum ? OkStatus() : DataLoss("the head's checksum is wrong");
}

uint64_t SectionChecksumIn(const std::span<const std::byte> head, const int64_t section) {
  uint64_t sum = 0;
  std::memcpy(&sum, head.data() + sizeof(RecordHead) + section * 8, sizeof(sum));
  return sum;
}

std::string_view HeaderIn(const std::span<const std::byte> head) {
  const RecordHead start = StartOf(head);
  const RecordLayout layout(start.header_bytes, start.payload_bytes);
  return {reinterpret_cast<const char*>(head.data()) + sizeof(RecordHead) + layout.sections * 8,
          static_cast<size_t>(start.header_bytes)};
}

}  // namespace invar::cache
