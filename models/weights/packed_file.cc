// The header is written last but lies first: its size is fixed beforehand by reserving room for the block checksums.
#include "models/weights/packed_file.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/fingerprint.h"
#include "models/text/strict_json.h"

namespace invar::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "INVARPK1";
constexpr int64_t kPageBytes = 4096;
constexpr int64_t kPrefixBytes = 8 + 8 + 32;  // Magic, header bytes, SHA-256 of the header.
constexpr int64_t kBlockBytes = 1 << 20;
constexpr int64_t kBlocksChecked = 64;
constexpr int64_t kHeaderBytesMax = 64 << 20;

int64_t RoundUp(const int64_t value, const int64_t unit) { return (value + unit - 1) / unit * unit; }

// Mixes eight bytes at a time in four lanes: memory speed, and any flipped bit or shifted page changes it. Not against
// malice: who can write the packed file can write the weights.
uint64_t Checksum(const std::span<const std::byte> bytes) {
  uint64_t lanes[4] = {0x9E3779B97F4A7C15U, 0xBF58476D1CE4E5B9U, 0x94D049BB133111EBU, bytes.size()};
  const size_t words = bytes.size() / 8;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i * 8, 8);
    uint64_t& lane = lanes[i % 4];
    lane = (lane ^ word) * 0x9FB21C651E98DF25U;
    lane ^= lane >> 29;
  }
  uint64_t tail = 0;
  if (const size_t rest = bytes.size() % 8; rest != 0) std::memcpy(&tail, bytes.data() + words * 8, rest);
  uint64_t sum = tail;
  for (const uint64_t lane : lanes) sum = (sum ^ lane) * 0xD6E8FEB86659FD93U;
  return sum ^ (sum >> 32);
}

std::span<const std::byte> Block(const std::span<const std::byte> payload, const int64_t index) {
  const int64_t begin = index * kBlockBytes;
  return payload.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min<int64_t>(
                                                         kBlockBytes, static_cast<int64_t>(payload.size()) - begin)));
}

int64_t BlocksOf(const int64_t payload_bytes) { return (payload_bytes + kBlockBytes - 1) / kBlockBytes; }

std::string HeaderText(const PackedKey& key, const std::string& fingerprint, const std::vector<uint64_t>& checksums) {
  Json header;
  header["layout"] = key.layout;
  header["fingerprint"] = fingerprint;
  header["payload_bytes"] = key.payload_bytes;
  header["sources"] = Json::array();
  for (const PackedSource& source : key.sources) {
    header["sources"].push_back({{"name", source.name},
                                 {"bytes", source.bytes},
                                 {"modified_ns", source.modified_ns},
                                 {"changed_ns", source.changed_ns},
                                 {"inode", source.inode}});
  }
  std::string sums;
  for (const uint64_t checksum : checksums) sums += fmt::format("{:016x}", checksum);
  header["block_checksums"] = sums;
  return header.dump();
}

// Everything but the payload. Gives the header and where the payload begins; empty `why` is success.
nlohmann::json ReadHeader(const std::span<const std::byte> file, int64_t& payload_begin, std::string& why) {
  uint64_t header_bytes = 0;
  if (static_cast<int64_t>(file.size()) < kPrefixBytes || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    why = "it does not start as a packed file";
    return {};
  }
  std::memcpy(&header_bytes, file.data() + 8, 8);
  if (header_bytes >
      static_cast<uint64_t>(std::min<int64_t>(kHeaderBytesMax, static_cast<int64_t>(file.size()) - kPrefixBytes))) {
    why = "its header reaches past its end";
    return {};
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kPrefixBytes, header_bytes);
  const Digest digest = Sha256(text);
  if (std::memcmp(digest.data(), file.data() + 16, digest.size()) != 0) {
    why = "its header does not match its checksum";
    return {};
  }
  StatusOr<nlohmann::json> header = ParseStrictJson(text, "packed file");
  if (!header.ok()) {
    why = header.status().message();
    return {};
  }
  payload_begin = RoundUp(kPrefixBytes + static_cast<int64_t>(header_bytes), kPageBytes);
  return *std::move(header);
}

// The header was written by us (its checksum holds), so its keys are there.
std::string CompareKey(const nlohmann::json& header, const PackedKey& key) {
  if (header["layout"] != key.layout) return "it was packed for another configuration, numerics or version";
  if (header["payload_bytes"] != key.payload_bytes) return "its payload has another size";
  std::vector<PackedSource> sources;
  for (const auto& source : header["sources"]) {
    sources.push_back({.name = source["name"].get<std::string>(),
                       .bytes = source["bytes"].get<int64_t>(),
                       .modified_ns = source["modified_ns"].get<int64_t>(),
                       .changed_ns = source["changed_ns"].get<int64_t>(),
                       .inode = source["inode"].get<int64_t>()});
  }
  if (sources == key.sources || header["fingerprint"] == key.fingerprint()) return {};
  return "the weight files changed since";
}

// The checksums of the header; fewer than blocks where it is no list of 16 hex digits each.
std::vector<uint64_t> ChecksumsOf(const nlohmann::json& header) {
  const std::string text = header["block_checksums"].get<std::string>();
  std::vector<uint64_t> checksums(text.size() / 16);
  for (size_t i = 0; i < checksums.size(); ++i) {
    const char* begin = text.data() + i * 16;
    if (std::from_chars(begin, begin + 16, checksums[i], 16).ptr != begin + 16) return {};
  }
  return checksums;
}

std::string CheckBlocks(PackedFile& packed) {
  const int64_t blocks = BlocksOf(static_cast<int64_t>(packed.payload.size()));
  if (static_cast<int64_t>(packed.checksums.size()) != blocks) return "its checksums are incomplete";
  const int64_t checked = std::min(blocks, kBlocksChecked);
  packed.checked_whole = checked == blocks;
  for (int64_t i = 0; i < checked; ++i) {
    const int64_t block = checked == 1 ? 0 : i * (blocks - 1) / (checked - 1);
    if (Checksum(Block(packed.payload, block)) != packed.checksums[static_cast<size_t>(block)])
      return fmt::format("block {} does not match its checksum", block);
  }
  return {};
}

}  // namespace

std::optional<PackedFile> OpenPackedFile(const std::string& path, const PackedKey& key, std::string& why) {
  StatusOr<FileMap> map = FileMap::Open(path);
  if (!map.ok()) {
    if (map.status().code() != StatusCode::kNotFound) why = map.status().message();
    return std::nullopt;
  }
  PackedFile packed{.map = *std::move(map)};
  const std::span<const std::byte> file = packed.map.bytes();
  int64_t payload_begin = 0;
  const nlohmann::json header = ReadHeader(file, payload_begin, why);
  if (why.empty()) why = CompareKey(header, key);
  if (why.empty() && static_cast<int64_t>(file.size()) != payload_begin + key.payload_bytes) why = "it is truncated";
  if (!why.empty()) return std::nullopt;
  packed.payload = file.subspan(static_cast<size_t>(payload_begin));
  packed.checksums = ChecksumsOf(header);
  why = CheckBlocks(packed);
  if (!why.empty()) return std::nullopt;
  packed.fingerprint = header["fingerprint"].get<std::string>();
  return packed;
}

PackedCheck::PackedCheck(const std::span<const std::byte> payload, std::vector<uint64_t> checksums,
                         std::function<void(std::optional<int64_t>)> end)
    : thread_([payload, checksums = std::move(checksums), end = std::move(end)](const std::stop_token& stop) {
        const sched_param idle{};
        sched_setscheduler(0, SCHED_IDLE, &idle);  // Of this thread. Where that is refused it only takes its turn.
        for (size_t i = 0; i < checksums.size(); ++i) {
          if (stop.stop_requested()) return;
          const auto block = static_cast<int64_t>(i);
          if (Checksum(Block(payload, block)) != checksums[i]) return end(block);
        }
        end(std::nullopt);
      }) {}

Status WritePackedFile(const std::string& path, const PackedKey& key, const std::string& fingerprint,
                       const std::function<Status(std::span<std::byte>)>& fill) {
  std::vector<uint64_t> checksums(static_cast<size_t>(BlocksOf(key.payload_bytes)));
  const size_t header_bytes = HeaderText(key, fingerprint, checksums).size();
  const int64_t payload_begin = RoundUp(kPrefixBytes + static_cast<int64_t>(header_bytes), kPageBytes);

  StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  StatusOr<std::span<std::byte>> memory = file->MapForWriting(payload_begin + key.payload_bytes);
  if (!memory.ok()) return memory.status();
  const std::span<std::byte> payload = memory->subspan(static_cast<size_t>(payload_begin));
  if (Status s = fill(payload); !s.ok()) return s;

  for (size_t i = 0; i < checksums.size(); ++i) checksums[i] = Checksum(Block(payload, static_cast<int64_t>(i)));
  const std::string header = HeaderText(key, fingerprint, checksums);
  Check(header.size() == header_bytes, "checksums do not change the header's size");
  const uint64_t length = header.size();
  const Digest digest = Sha256(header);
  std::memcpy(memory->data(), kMagic.data(), kMagic.size());
  std::memcpy(memory->data() + 8, &length, 8);
  std::memcpy(memory->data() + 16, digest.data(), digest.size());
  std::memcpy(memory->data() + kPrefixBytes, header.data(), header.size());
  return file->Commit();
}

}  // namespace invar::models
