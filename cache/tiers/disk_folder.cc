// See disk_folder.h.
#include "cache/tiers/disk_folder.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <tuple>

#include "base/fingerprint.h"

namespace invar::cache {
namespace {

constexpr std::string_view kStoreMagic = "invar tier folder 2\n";
constexpr std::string_view kDropsMagic = "invar tier drops 1\n";
constexpr int64_t kStoreFileBytesMax = 4096;

std::string HexOf(const std::array<std::byte, 32>& bytes) {
  Digest digest;
  std::memcpy(digest.data(), bytes.data(), bytes.size());
  return ToHex(digest);
}
template <size_t kBytes>
bool ParseHex(const std::string_view text, std::array<std::byte, kBytes>& out) {
  if (text.size() != 2 * kBytes) return false;
  for (size_t i = 0; i < kBytes; ++i) {
    uint8_t byte = 0;
    const char* const begin = text.data() + 2 * i;
    if (std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) return false;
    out[i] = std::byte{byte};
  }
  return true;
}
bool ParseSequence(const std::string_view text, uint64_t& out) {
  return text.size() == 16 && std::from_chars(text.data(), text.data() + 16, out, 16).ptr == text.data() + 16;
}

// A text with the SHA-256 of it behind.
std::string Sealed(const std::string& text) { return text + ToHex(Sha256(text)) + "\n"; }

// All of a small file; empty where there is none.
StatusOr<std::string> ReadText(FileLayer& files, const std::string& path, const int64_t bytes_max) {
  const int opened = files.Open(path, O_RDONLY);
  if (opened < 0) return FromError(opened, path, "open");
  const OpenFile file(files, opened);
  std::string text(static_cast<size_t>(bytes_max), '\0');
  size_t read = 0;
  for (int64_t got = 1; got > 0 && read < text.size(); read += static_cast<size_t>(got)) {
    got = files.ReadAt(file.fd(), std::as_writable_bytes(std::span(text)).subspan(read), static_cast<int64_t>(read));
    if (got < 0) return FromError(got, path, "read");
  }
  text.resize(read);
  return text;
}

// Whole or not at all, and on the disk when it returns.
Status WriteText(FileLayer& files, const std::string& folder, const std::string_view name, const std::string& text) {
  const std::string path = fmt::format("{}/{}", folder, name);
  const std::string partial = path + std::string(kPartialSuffix);
  const int opened = files.Open(partial, O_WRONLY | O_CREAT | O_TRUNC);
  if (opened < 0) return FromError(opened, partial, "create");
  OpenFile file(files, opened);
  for (size_t written = 0; written < text.size();) {
    const std::span<const std::byte> left = std::as_bytes(std::span(text)).subspan(written);
    const int64_t put = files.WriteAt(file.fd(), left, static_cast<int64_t>(written));
    if (put < 0) return FromError(put, partial, "write");
    if (put == 0) return Unavailable(fmt::format("disk: {}: cut short", partial));
    written += static_cast<size_t>(put);
  }
  if (const int synced = files.Sync(file.fd()); synced < 0) return FromError(synced, partial, "sync");
  if (const int closed = file.Close(); closed < 0) return FromError(closed, partial, "close");
  if (const int renamed = files.Rename(partial, path); renamed < 0) return FromError(renamed, path, "rename");
  const int at = files.Open(folder, O_RDONLY);
  if (at < 0) return FromError(at, folder, "open");
  const OpenFile names(files, at);
  const int synced = files.Sync(names.fd());
  return synced < 0 ? FromError(synced, folder, "sync") : OkStatus();
}

// The store file: magic line, the id.
std::string StoreText(const std::string& store_id) { return Sealed(std::string(kStoreMagic) + store_id + "\n"); }

// The list of drops: magic line, a line a drop: length of what spaces begin with, the space, the sequence.
std::string DropsText(const DropLog& drops) {
  std::string text(kDropsMagic);
  for (const DropLog::Drop& drop : drops.drops()) {
    text += fmt::format("{:02x} {} {:016x}\n", drop.of.bytes, HexOf(drop.of.space), drop.sequence);
  }
  return Sealed(text);
}

constexpr int64_t kDropLineBytes = 2 + 1 + 64 + 1 + 16 + 1;
constexpr int64_t kDropsFileBytesMax = 4096 + kDropLineBytes * static_cast<int64_t>(DropLog::kDropsMax);

bool ParseStem(const std::string_view stem, RecordName& name) {
  constexpr size_t kHex = 64;
  return stem.size() == 2 * (kHex + 1) + 16 && ParseHex(stem.substr(0, kHex), name.key) &&
         ParseHex(stem.substr(kHex + 1, kHex), name.space) && ParseSequence(stem.substr(2 * kHex + 2), name.sequence) &&
         StemOf(name) == stem;
}

}  // namespace

// ENOSPC and EDQUOT are no room, ENOENT is not there, all else is the disk's or the system's fault.
Status FromError(const int64_t result, const std::string& path, const char* doing) {
  const int error = static_cast<int>(-result);
  std::string text = fmt::format("disk: {}: {}: {}", path, doing, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return ResourceExhausted(std::move(text));
  return error == ENOENT ? NotFound(std::move(text)) : Unavailable(std::move(text));
}

std::string StemOf(const RecordName& name) {
  return fmt::format("{}-{}-{:016x}", HexOf(name.key), HexOf(name.space), name.sequence);
}

StatusOr<FolderContent> ListFolder(FileLayer& files, const std::string& path) {
  std::vector<FileLayer::FolderEntry> entries;
  if (const int listed = files.List(path, entries); listed < 0) return FromError(listed, path, "list");
  FolderContent content;
  for (const FileLayer::FolderEntry& entry : entries) {
    const std::string_view name = entry.name;
    FoundRecord record{.file = entry.name, .name = {}, .bytes = entry.bytes, .modified_ns = entry.modified_ns};
    if (name == "lock" || name == "dropped") continue;
    if (name == "store") {
      content.has_store = true;
    } else if (name.ends_with(kPartialSuffix)) {
      content.partials.push_back(entry.name);
    } else if (name.ends_with(kRecordSuffix) &&
               ParseStem(name.substr(0, name.size() - kRecordSuffix.size()), record.name)) {
      content.records.push_back(std::move(record));
    } else {
      content.foreign.push_back(entry.name);
    }
  }
  std::sort(content.records.begin(), content.records.end(), [](const FoundRecord& a, const FoundRecord& b) {
    return std::tie(a.modified_ns, a.name.sequence) < std::tie(b.modified_ns, b.name.sequence);
  });
  return content;
}

StatusOr<std::string> ReadStoreId(FileLayer& files, const std::string& folder) {
  const std::string path = folder + "/store";
  const StatusOr<std::string> text = ReadText(files, path, kStoreFileBytesMax);
  if (!text.ok()) return text.status();
  const size_t id_end = text->starts_with(kStoreMagic) ? text->find('\n', kStoreMagic.size()) : std::string::npos;
  if (id_end != std::string::npos) {
    std::string id = text->substr(kStoreMagic.size(), id_end - kStoreMagic.size());
    if (StoreText(id) == *text) return id;
  }
  return FailedPrecondition(
      fmt::format("{} is damaged, or of another version of Invar; remove the folder {}", path, folder));
}

Status WriteStoreId(FileLayer& files, const std::string& folder, const std::string& store_id) {
  return WriteText(files, folder, "store", StoreText(store_id));
}

bool FitsStoreFile(const std::string& store_id) {
  return store_id.find('\n') == std::string::npos &&
         StoreText(store_id).size() < static_cast<size_t>(kStoreFileBytesMax);
}

bool HasStoreFile(FileLayer& files, const std::string& folder) {
  const StatusOr<std::string> text = ReadText(files, folder + "/store", kStoreFileBytesMax);
  return text.ok() && text->starts_with(kStoreMagic);
}

StatusOr<DropLog> ReadDrops(FileLayer& files, const std::string& folder) {
  const std::string path = folder + "/dropped";
  const StatusOr<std::string> text = ReadText(files, path, kDropsFileBytesMax);
  if (text.status().code() == StatusCode::kNotFound) return DropLog();
  if (!text.ok()) return text.status();
  DropLog drops;
  std::string_view rest = *text;
  rest.remove_prefix(std::min(rest.size(), kDropsMagic.size()));
  for (constexpr size_t kLine = kDropLineBytes; rest.size() >= kLine && rest[kLine - 1] == '\n' && rest[2] == ' ';
       rest.remove_prefix(kLine)) {
    DropLog::Drop drop;
    std::array<std::byte, 1> bytes{};
    if (!ParseHex(rest.substr(0, 2), bytes) || !ParseHex(rest.substr(3, 64), drop.of.space) ||
        !ParseSequence(rest.substr(68, 16), drop.sequence) ||
        std::to_integer<size_t>(bytes[0]) > drop.of.space.size()) {
      break;
    }
    drop.of.bytes = std::to_integer<size_t>(bytes[0]);
    drops.Add(drop.of, drop.sequence);
  }
  if (DropsText(drops) != *text) return DataLoss(fmt::format("disk: {} is damaged", path));
  return drops;
}

Status WriteDrops(FileLayer& files, const std::string& folder, const DropLog& drops) {
  return WriteText(files, folder, "dropped", DropsText(drops));
}

}  // namespace invar::cache
