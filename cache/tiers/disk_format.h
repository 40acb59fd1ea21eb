// How one record lies in its file: a head that says everything, then the payload in sections.
//
//   offset 0            RecordHead, then a checksum a section, then the caller's header, then zeros to a whole block
//   offset head_bytes   sections of kSectionBytes, the last filled with zeros to a whole block
//
// The head's checksum covers the whole head (its own field as zero), each section's its section with the filling: every
// bit of the file is covered. Key, space and store are in the head: a file that took another's name or came from
// another model's folder is refused. Checksums are XXH3-64: against broken disks, not against an attacker who may write
// here. Numbers are little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fingerprint.h"
#include "base/status.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

static_assert(std::endian::native == std::endian::little, "records are written as they lie in memory");

inline constexpr int64_t kBlockBytes = 4096;  // What O_DIRECT wants of offsets, lengths and buffers.
// Large enough that a disk reaches its sequential rate, small enough to check and copy from a core's cache.
inline constexpr int64_t kSectionBytes = int64_t{1} << 20;

constexpr int64_t WholeBlocks(const int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

struct RecordHead {
  std::array<char, 8> magic;
  uint64_t checksum;
  int64_t header_bytes;
  int64_t payload_bytes;
  TierKey key;
  TierSpace space;
  Digest store;  // SHA-256 of the store id.
};
static_assert(sizeof(RecordHead) == 128 && sizeof(RecordHead) <= kBlockBytes);

// Sizes that follow from the two that are stored. Requires: both within the limits of tier.h.
struct RecordLayout {
  RecordLayout(int64_t header_bytes, int64_t payload_bytes);
  int64_t sections;
  int64_t head_bytes;
  int64_t file_bytes;
  // Of section i without and with its filling.
  int64_t SectionBytes(int64_t section) const;
  int64_t FilledSectionBytes(int64_t section) const { return WholeBlocks(SectionBytes(section)); }

 private:
  int64_t payload_bytes_;
};

// Memory that O_DIRECT accepts.
class BlockBuffer {
 public:
  explicit BlockBuffer(int64_t bytes);  // Rounded up to whole blocks.
  std::span<std::byte> bytes() { return {data_.get(), static_cast<size_t>(bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  int64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

uint64_t SectionChecksum(std::span<const std::byte> filled_section);

// Writes a whole head into `out`, which has layout.head_bytes.
void WriteHead(const TierRecord& record, const Digest& store, std::span<const uint64_t> section_checksums,
               std::span<std::byte> out);

// Whether a first block begins a record of this format whose sizes are within the limits and fit the file's.
// Errors: DATA_LOSS saying what is wrong.
StatusOr<RecordHead> ReadHeadStart(std::span<const std::byte> first_block, int64_t file_bytes);
// Checks the whole head. Errors: DATA_LOSS.
Status CheckHead(std::span<std::byte> head);
// Requires: CheckHead.
uint64_t SectionChecksumIn(std::span<const std::byte> head, int64_t section);
std::string_view HeaderIn(std::span<const std::byte> head);

}  // namespace invar::cache
