// The disk store: one file a record (disk_format.h) in one folder, least recently used out first.
//
//   FOLDER/lock                      held by the one process that uses the folder
//   FOLDER/store                     whose records these are: another model's folder is refused, not overwritten
//   FOLDER/KEY-SEQUENCE.record       a record; complete since the moment it has this name
//   FOLDER/KEY-SEQUENCE.partial      a record on its way; removed at open
//
// A record is written under its partial name, synced and renamed: a process killed at any moment leaves a partial file
// at worst. What a power cut may do beyond that (a name without its content) fails the checksums. Every version of a
// record has a name of its own, so that no lock is held over I/O: readers of a replaced or evicted file keep it open.
// The order of use outlives a restart in the files' modification times.
// Reads and writes go around the page cache where the file system allows it (O_DIRECT): what is hot is in memory
// already, and the measured bandwidth is that of the disk.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "cache/tiers/disk_format.h"
#include "cache/tiers/file_layer.h"
#include "cache/tiers/lru_index.h"
#include "cache/tiers/stores.h"

namespace invar::cache {
namespace {

constexpr std::string_view kRecordSuffix = ".record";
constexpr std::string_view kPartialSuffix = ".partial";
constexpr std::string_view kStoreMagic = "invar tier folder 1\n";
constexpr int64_t kStoreFileBytesMax = kBlockBytes;
// Older than what this process uses, and all alike: in the order in which they come.
constexpr TimeNs kBeforeStart = 0;

// ENOSPC and EDQUOT are no room, ENOENT is not there, all else is the disk's or the system's fault.
Status FromError(const int64_t result, const std::string& path, const char* doing) {
  const int error = static_cast<int>(-result);
  std::string text = fmt::format("disk: {}: {}: {}", path, doing, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return ResourceExhausted(std::move(text));
  return error == ENOENT ? NotFound(std::move(text)) : Unavailable(std::move(text));
}

// A descriptor that is closed on every way out.
class OpenFile {
 public:
  OpenFile(FileLayer& files, const int fd) : files_(&files), fd_(fd) {}
  OpenFile(OpenFile&& other) noexcept : files_(other.files_), fd_(std::exchange(other.fd_, -1)) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) files_->Close(fd_);
  }
  int fd() const { return fd_; }
  int Close() { return files_->Close(std::exchange(fd_, -1)); }

 private:
  FileLayer* files_;
  int fd_;
};

// All of `to`, in whole blocks. What the system cuts short goes on at the last whole block, as O_DIRECT wants it.
Status ReadBlocks(FileLayer& files, const int fd, const std::string& path, std::span<std::byte> to, int64_t offset) {
  while (!to.empty()) {
    const int64_t got = files.ReadAt(fd, to, offset);
    // What the disk cannot read back is lost; other errors say nothing about the record.
    if (got == -EIO) return DataLoss(fmt::format("disk: {}: the disk cannot read it", path));
    if (got < 0) return FromError(got, path, "read");
    if (got == 0) return DataLoss(fmt::format("disk: {}: ends early", path));
    const int64_t whole = got / kBlockBytes * kBlockBytes;
    if (whole == 0) return Unavailable(fmt::format("disk: {}: read {} bytes of a block", path, got));
    to = to.subspan(static_cast<size_t>(whole));
    offset += whole;
  }
  return OkStatus();
}

Status WriteBlocks(FileLayer& files, const int fd, const std::string& path, std::span<const std::byte> from,
                   int64_t offset) {
  while (!from.empty()) {
    const int64_t put = files.WriteAt(fd, from, offset);
    if (put < 0) return FromError(put, path, "write");
    const int64_t whole = put / kBlockBytes * kBlockBytes;
    if (whole == 0) return Unavailable(fmt::format("disk: {}: wrote {} bytes of a block", path, put));
    from = from.subspan(static_cast<size_t>(whole));
    offset += whole;
  }
  return OkStatus();
}

std::string KeyText(const TierKey& key) {
  Digest digest;
  std::memcpy(digest.data(), key.data(), key.size());
  return ToHex(digest);
}

// KEY-SEQUENCE, both in hexadecimal.
std::string StemOf(const TierKey& key, const uint64_t sequence) {
  return fmt::format("{}-{:016x}", KeyText(key), sequence);
}
bool ParseStem(const std::string_view stem, TierKey& key, uint64_t& sequence) {
  if (stem.size() != 2 * key.size() + 1 + 16 || stem[2 * key.size()] != '-') return false;
  for (size_t i = 0; i < key.size(); ++i) {
    uint8_t byte = 0;
    const char* const begin = stem.data() + 2 * i;
    if (std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) return false;
    key[i] = std::byte{byte};
  }
  return std::from_chars(stem.data() + 2 * key.size() + 1, stem.data() + stem.size(), sequence, 16).ptr ==
             stem.data() + stem.size() &&
         StemOf(key, sequence) == stem;
}

struct FoundRecord {
  std::string name;
  TierKey key{};
  uint64_t sequence = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;
};

struct FolderContent {
  std::vector<FoundRecord> records;  // Oldest use first.
  std::vector<std::string> partials;
  std::vector<std::string> foreign;
  bool has_store = false;
};

StatusOr<FolderContent> ListFolder(FileLayer& files, const std::string& path) {
  std::vector<FileLayer::FolderEntry> entries;
  if (const int listed = files.List(path, entries); listed < 0) return FromError(listed, path, "list");
  FolderContent content;
  for (const FileLayer::FolderEntry& entry : entries) {
    const std::string_view name = entry.name;
    FoundRecord record{.name = entry.name, .bytes = entry.bytes, .modified_ns = entry.modified_ns};
    if (name == "lock") continue;
    if (name == "store") {
      content.has_store = true;
    } else if (name.ends_with(kPartialSuffix)) {
      content.partials.push_back(entry.name);
    } else if (name.ends_with(kRecordSuffix) &&
               ParseStem(name.substr(0, name.size() - kRecordSuffix.size()), record.key, record.sequence)) {
      content.records.push_back(std::move(record));
    } else {
      content.foreign.push_back(entry.name);
    }
  }
  std::sort(content.records.begin(), content.records.end(), [](const FoundRecord& a, const FoundRecord& b) {
    return std::tie(a.modified_ns, a.sequence) < std::tie(b.modified_ns, b.sequence);
  });
  return content;
}

// The store file: magic line, the id, the SHA-256 of both.
std::string StoreText(const std::string& store_id) {
  const std::string text = std::string(kStoreMagic) + store_id + "\n";
  return text + ToHex(Sha256(text)) + "\n";
}

StatusOr<std::string> ReadStoreId(FileLayer& files, const std::string& folder) {
  const std::string path = folder + "/store";
  const int opened = files.Open(path, O_RDONLY);
  if (opened < 0) return FromError(opened, path, "open");
  const OpenFile file(files, opened);
  std::string text(kStoreFileBytesMax, '\0');
  const int64_t got = files.ReadAt(file.fd(), std::as_writable_bytes(std::span(text)), 0);
  if (got < 0) return FromError(got, path, "read");
  text.resize(static_cast<size_t>(got));
  const size_t id_end = text.starts_with(kStoreMagic) ? text.find('\n', kStoreMagic.size()) : std::string::npos;
  if (id_end != std::string::npos) {
    std::string id = text.substr(kStoreMagic.size(), id_end - kStoreMagic.size());
    if (StoreText(id) == text) return id;
  }
  return FailedPrecondition(
      fmt::format("{} is damaged, or of another version of Invar; remove the folder {}", path, folder));
}

Status WriteStoreId(FileLayer& files, const std::string& folder, const std::string& store_id) {
  const std::string path = folder + "/store";
  const std::string partial = path + std::string(kPartialSuffix);
  const int opened = files.Open(partial, O_WRONLY | O_CREAT | O_TRUNC);
  if (opened < 0) return FromError(opened, partial, "create");
  OpenFile file(files, opened);
  const std::string text = StoreText(store_id);
  const int64_t put = files.WriteAt(file.fd(), std::as_bytes(std::span(text)), 0);
  if (put < 0) return FromError(put, partial, "write");
  if (put != static_cast<int64_t>(text.size())) return Unavailable(fmt::format("disk: {}: cut short", partial));
  if (const int synced = files.Sync(file.fd()); synced < 0) return FromError(synced, partial, "sync");
  if (const int closed = file.Close(); closed < 0) return FromError(closed, partial, "close");
  if (const int renamed = files.Rename(partial, path); renamed < 0) return FromError(renamed, path, "rename");
  return OkStatus();
}

// A record's head, checked as far as it can be alone.
struct CheckedHead {
  RecordHead start;
  BlockBuffer head;
};

StatusOr<CheckedHead> ReadHead(FileLayer& files, const int fd, const std::string& path, const TierKey& key,
                               const Digest& store) {
  const int64_t file_bytes = files.BytesOf(fd);
  if (file_bytes < 0) return FromError(file_bytes, path, "stat");
  if (file_bytes < kBlockBytes) return DataLoss(fmt::format("disk: {}: only {} bytes", path, file_bytes));
  BlockBuffer first(kBlockBytes);
  if (Status read = ReadBlocks(files, fd, path, first.bytes(), 0); !read.ok()) return read;
  const StatusOr<RecordHead> start = ReadHeadStart(first.bytes(), file_bytes);
  if (!start.ok()) return DataLoss(fmt::format("disk: {}: {}", path, start.status().message()));
  const RecordLayout layout(start->header_bytes, start->payload_bytes);
  BlockBuffer head(layout.head_bytes);
  std::memcpy(head.bytes().data(), first.bytes().data(), static_cast<size_t>(kBlockBytes));
  const std::span<std::byte> rest = head.bytes().subspan(static_cast<size_t>(kBlockBytes));
  if (Status read = ReadBlocks(files, fd, path, rest, kBlockBytes); !read.ok()) return read;
  if (Status sound = CheckHead(head.bytes()); !sound.ok()) {
    return DataLoss(fmt::format("disk: {}: {}", path, sound.message()));
  }
  if (start->key != key) return DataLoss(fmt::format("disk: {}: is the record of another key", path));
  if (start->store != store) return DataLoss(fmt::format("disk: {}: is the record of another store", path));
  return CheckedHead{*start, std::move(head)};
}

// Reads the sections in order; gives each, filling included, once its checksum is right. `visit` -> false: give up.
template <typename Visit>
Status ReadSections(FileLayer& files, const int fd, const std::string& path, CheckedHead& head, const Visit& visit) {
  const RecordLayout layout(head.start.header_bytes, head.start.payload_bytes);
  BlockBuffer buffer(std::min(kSectionBytes, head.start.payload_bytes));
  for (int64_t section = 0; section < layout.sections; ++section) {
    const std::span<std::byte> filled = buffer.bytes().first(static_cast<size_t>(layout.FilledSectionBytes(section)));
    if (Status read = ReadBlocks(files, fd, path, filled, layout.head_bytes + section * kSectionBytes); !read.ok()) {
      return read;
    }
    if (SectionChecksum(filled) != SectionChecksumIn(head.head.bytes(), section)) {
      return DataLoss(fmt::format("disk: {}: the checksum of section {} is wrong", path, section));
    }
    const std::span<const std::byte> bytes = filled.first(static_cast<size_t>(layout.SectionBytes(section)));
    if (!visit(section * kSectionBytes, bytes)) return CallEnded();
  }
  return OkStatus();
}

class DiskStore final : public TierStore {
 public:
  DiskStore(DiskOptions options, FileLayer& files, OpenFile lock)
      : options_(std::move(options)),
        store_(Sha256(options_.store_id)),
        files_(files),
        lock_(std::move(lock)),
        direct_(options_.direct),
        index_(options_.budget_bytes) {}

  // Takes over what the folder holds; what exceeds the budget or was on its way goes. Once, before other calls.
  Status Load() {
    StatusOr<FolderContent> content = ListFolder(files_, options_.path);
    if (!content.ok()) return content.status();
    std::vector<std::string> gone;
    for (const std::string& partial : content->partials) gone.push_back(options_.path + "/" + partial);
    {
      const MutexLock lock(mu_);
      for (const FoundRecord& record : content->records) {
        next_sequence_ = std::max(next_sequence_, record.sequence + 1);
        std::vector<Index::Entry> evicted;
        const Index::Entry* const same = index_.Find(record.key);
        // A newer version of the key is there already: this one should have gone when it was replaced.
        const bool is_old = same != nullptr && same->value.sequence > record.sequence;
        if (is_old || !index_.Reserve(record.bytes, kBeforeStart, evicted)) {
          gone.push_back(options_.path + "/" + record.name);
          continue;
        }
        if (std::optional<Index::Entry> replaced =
                index_.Commit({record.key, record.bytes, {record.sequence}}, kBeforeStart)) {
          evicted.push_back(*std::move(replaced));
        }
        for (const Index::Entry& entry : evicted) gone.push_back(PathOf(entry.key, entry.value.sequence));
      }
    }
    for (const std::string& path : gone) RemoveFile(path);
    return OkStatus();
  }

  std::string_view name() const override { return "disk"; }

  std::vector<TierRecord> Inventory() override {
    std::vector<std::pair<TierKey, Version>> versions;
    {
      const MutexLock lock(mu_);
      index_.ForEach([&](const Index::Entry& entry) { versions.emplace_back(entry.key, entry.value); });
    }
    std::vector<TierRecord> records;
    for (const auto& [key, version] : versions) {
      StatusOr<TierRecord> record = ReadRecord(key, version);
      if (record.ok()) records.push_back(*std::move(record));
    }
    return records;
  }

  StatusOr<std::vector<TierRecord>> Find(const std::span<const TierKey> keys, TierTransfer& call) override {
    std::vector<TierRecord> records;
    for (const TierKey& key : keys) {
      if (call.ended()) return CallEnded();
      std::optional<Version> version;
      {
        const MutexLock lock(mu_);
        if (const Index::Entry* const entry = index_.Find(key)) version = entry->value;
      }
      if (!version) continue;
      StatusOr<TierRecord> record = ReadRecord(key, *version);
      if (record.ok()) records.push_back(*std::move(record));
    }
    return records;
  }

  Status Put(const TierRecord& record, TierTransfer& payload) override {
    const RecordLayout layout(static_cast<int64_t>(record.header.size()), record.payload_bytes);
    std::vector<Index::Entry> evicted;
    uint64_t sequence = 0;
    {
      const MutexLock lock(mu_);
      if (!index_.Reserve(layout.file_bytes, record.used_at, evicted)) {
        return ResourceExhausted(
            fmt::format("disk: a record of {} bytes does not fit the budget of {} beside later used", layout.file_bytes,
                        index_.budget_bytes()));
      }
      sequence = next_sequence_++;
    }
    RemoveEntries(evicted);
    const std::string stem = options_.path + "/" + StemOf(record.key, sequence);
    const std::string partial = stem + std::string(kPartialSuffix);
    Status written = WriteRecord(partial, record, layout, payload);
    if (written.code() == StatusCode::kResourceExhausted) {
      // The disk is full below our budget: as many bytes as are missing at most, then once more.
      RemoveFile(partial);
      {
        const MutexLock lock(mu_);
        evicted = index_.EvictOldest(layout.file_bytes, record.used_at);
      }
      RemoveEntries(evicted);
      if (!evicted.empty()) written = WriteRecord(partial, record, layout, payload);
    }
    if (written.ok()) {
      const std::string path = stem + std::string(kRecordSuffix);
      if (const int renamed = files_.Rename(partial, path); renamed < 0) written = FromError(renamed, path, "rename");
    }
    std::optional<Index::Entry> replaced;
    int64_t modified_ns = 0;
    {
      const MutexLock lock(mu_);
      if (!written.ok()) {
        index_.Cancel(layout.file_bytes);
      } else {
        modified_ns = ModifiedAt(record.used_at);
        replaced = index_.Commit({record.key, layout.file_bytes, {sequence}}, record.used_at);
      }
    }
    if (!written.ok()) RemoveFile(partial);
    if (written.ok()) RememberUse(record.key, sequence, modified_ns);
    if (replaced) RemoveFile(PathOf(replaced->key, replaced->value.sequence));
    return written;
  }

  StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) override {
    std::optional<Version> version;
    int64_t modified_ns = 0;
    {
      const MutexLock lock(mu_);
      if (const Index::Entry* const entry = index_.Use(key)) version = entry->value;
      modified_ns = ModifiedAt(TierRecord::kJustNow);
    }
    if (!version) return NotFound("disk: no such record");
    StatusOr<std::string> header = ReadInto(key, *version, sink);
    if (header.ok()) {
      RememberUse(key, version->sequence, modified_ns);
    } else {
      DropIfUnusable(header.status(), key, *version);
    }
    return header;
  }

  Status Drop(const TierKey& key, TierTransfer&) override {
    std::optional<Index::Entry> removed;
    {
      const MutexLock lock(mu_);
      removed = index_.Remove(key);
    }
    if (removed) RemoveFile(PathOf(key, removed->value.sequence));
    return OkStatus();
  }

  TierContents Contents() const override {
    const MutexLock lock(mu_);
    return {index_.count(), index_.bytes(), index_.budget_bytes(), index_.evictions(), damaged_};
  }

 private:
  struct Version {
    uint64_t sequence = 0;
  };
  using Index = LruIndex<Version>;

  std::string PathOf(const TierKey& key, const uint64_t sequence) const {
    return options_.path + "/" + StemOf(key, sequence) + std::string(kRecordSuffix);
  }

  // For the order after a restart only: what it costs if it fails is a worse order.
  void RememberUse(const TierKey& key, const uint64_t sequence, const int64_t modified_ns) {
    files_.SetModified(PathOf(key, sequence), modified_ns);
  }
  // The use at `used_at` in the time of the files: as long before the latest use of all as by the caller's clock.
  int64_t ModifiedAt(const TimeNs used_at) REQUIRES_LOCK(mu_) {
    if (used_at > index_.latest()) latest_ns_ = files_.NowNs();  // kJustNow too.
    return used_at > index_.latest() ? latest_ns_ : latest_ns_ - (index_.latest() - used_at);
  }

  // Opens with O_DIRECT, without it where the file system does not know it (then for good).
  StatusOr<OpenFile> OpenRecord(const std::string& path, const int flags) {
    if (direct_.load()) {
      const int opened = files_.Open(path, flags | O_DIRECT);
      if (opened >= 0) return OpenFile(files_, opened);
      if (opened != -EINVAL) return FromError(opened, path, "open");
      direct_ = false;
    }
    // O_EXCL may have left a file behind where O_DIRECT failed after creating it.
    const int opened = files_.Open(path, flags & ~O_EXCL);
    if (opened < 0) return FromError(opened, path, "open");
    return OpenFile(files_, opened);
  }

  Status WriteRecord(const std::string& path, const TierRecord& record, const RecordLayout& layout,
                     TierTransfer& payload) {
    StatusOr<OpenFile> file = OpenRecord(path, O_WRONLY | O_CREAT | O_EXCL);
    if (!file.ok()) return file.status();
    std::vector<uint64_t> checksums(static_cast<size_t>(layout.sections));
    BlockBuffer buffer(std::min(kSectionBytes, record.payload_bytes));
    for (int64_t section = 0; section < layout.sections; ++section) {
      const int64_t bytes = layout.SectionBytes(section);
      const std::span<std::byte> filled = buffer.bytes().first(static_cast<size_t>(layout.FilledSectionBytes(section)));
      if (!payload.CopyFromPayload(section * kSectionBytes, filled.first(static_cast<size_t>(bytes)))) {
        return CallEnded();
      }
      std::fill(filled.begin() + bytes, filled.end(), std::byte{0});
      checksums[static_cast<size_t>(section)] = SectionChecksum(filled);
      const int64_t offset = layout.head_bytes + section * kSectionBytes;
      if (Status put = WriteBlocks(files_, file->fd(), path, filled, offset); !put.ok()) return put;
    }
    BlockBuffer head(layout.head_bytes);
    WriteHead(record, store_, checksums, head.bytes());
    if (Status put = WriteBlocks(files_, file->fd(), path, head.bytes(), 0); !put.ok()) return put;
    if (const int synced = files_.Sync(file->fd()); synced < 0) return FromError(synced, path, "sync");
    if (const int closed = file->Close(); closed < 0) return FromError(closed, path, "close");
    return OkStatus();
  }

  StatusOr<std::string> ReadInto(const TierKey& key, const Version version, TierTransfer& sink) {
    const std::string path = PathOf(key, version.sequence);
    StatusOr<OpenFile> file = OpenRecord(path, O_RDONLY);
    if (!file.ok()) return file.status();
    StatusOr<CheckedHead> head = ReadHead(files_, file->fd(), path, key, store_);
    if (!head.ok()) return head.status();
    if (head->start.payload_bytes != sink.bytes()) {
      return DataLoss(fmt::format("disk: {}: {} payload bytes are stored, {} were asked for", path,
                                  head->start.payload_bytes, sink.bytes()));
    }
    Status read = ReadSections(
        files_, file->fd(), path, *head,
        [&](const int64_t offset, const std::span<const std::byte> bytes) { return sink.CopyToSink(offset, bytes); });
    if (!read.ok()) return read;
    return std::string(HeaderIn(head->head.bytes()));
  }

  StatusOr<TierRecord> ReadRecord(const TierKey& key, const Version version) {
    const std::string path = PathOf(key, version.sequence);
    const StatusOr<OpenFile> file = OpenRecord(path, O_RDONLY);
    StatusOr<CheckedHead> head =
        file.ok() ? ReadHead(files_, file->fd(), path, key, store_) : StatusOr<CheckedHead>(file.status());
    if (!head.ok()) {
      DropIfUnusable(head.status(), key, version);
      return head.status();
    }
    return TierRecord{key, std::string(HeaderIn(head->head.bytes())), head->start.payload_bytes};
  }

  // A record that is damaged or gone will not get better; one that could not be opened or read in time may.
  void DropIfUnusable(const Status& status, const TierKey& key, const Version version) {
    if (status.code() != StatusCode::kDataLoss && status.code() != StatusCode::kNotFound) return;
    {
      const MutexLock lock(mu_);
      const Index::Entry* const entry = index_.Find(key);
      // Not a newer version of it.
      if (entry == nullptr || entry->value.sequence != version.sequence) return;
      index_.Remove(key);
      damaged_ += status.code() == StatusCode::kDataLoss ? 1 : 0;
    }
    Logger("cache")->warn("a record is dropped: {}", status.message());
    RemoveFile(PathOf(key, version.sequence));
  }

  void RemoveEntries(const std::vector<Index::Entry>& entries) {
    for (const Index::Entry& entry : entries) RemoveFile(PathOf(entry.key, entry.value.sequence));
  }

  // A file that cannot be removed now is tried again with the next one, so that its space is not lost for good.
  void RemoveFile(const std::string& path) {
    std::vector<std::string> paths;
    {
      const MutexLock lock(mu_);
      paths.swap(unremoved_);
    }
    paths.push_back(path);
    std::erase_if(paths, [&](const std::string& p) {
      const int removed = files_.Remove(p);
      return removed == 0 || removed == -ENOENT;
    });
    const MutexLock lock(mu_);
    unremoved_.insert(unremoved_.end(), paths.begin(), paths.end());
  }

  // Set at construction.
  const DiskOptions options_;
  const Digest store_;
  FileLayer& files_;
  const OpenFile lock_;

  std::atomic<bool> direct_;  // Only ever goes to false.

  mutable Mutex mu_;
  Index index_ GUARDED_BY(mu_);
  int64_t damaged_ GUARDED_BY(mu_) = 0;
  uint64_t next_sequence_ GUARDED_BY(mu_) = 1;
  int64_t latest_ns_ GUARDED_BY(mu_) = 0;  // Of the latest use of all, in the time of the files.
  std::vector<std::string> unremoved_ GUARDED_BY(mu_);
};

}  // namespace

StatusOr<std::unique_ptr<TierStore>> MakeDiskStore(DiskOptions options, FileLayer& files) {
  Check(options.store_id.find('\n') == std::string::npos &&
            StoreText(options.store_id).size() < static_cast<size_t>(kStoreFileBytesMax),
        "a store id is one line", options.store_id);
  if (const int made = files.MakeFolder(options.path); made < 0 && made != -EEXIST) {
    return FromError(made, options.path, "make the folder");
  }
  const std::string lock_path = options.path + "/lock";
  const int opened = files.Open(lock_path, O_RDWR | O_CREAT);
  if (opened < 0) return FromError(opened, lock_path, "open");
  OpenFile lock(files, opened);
  if (const int locked = files.LockExclusive(lock.fd()); locked < 0) {
    if (locked != -EWOULDBLOCK) return FromError(locked, lock_path, "lock");
    return FailedPrecondition(fmt::format("{} is used by another process; give each its own folder", options.path));
  }
  const StatusOr<FolderContent> content = ListFolder(files, options.path);
  if (!content.ok()) return content.status();
  if (!content->has_store) {
    if (!content->records.empty() || !content->foreign.empty()) {
      const std::string& name = content->records.empty() ? content->foreign.front() : content->records.front().name;
      return FailedPrecondition(fmt::format(
          "{} holds other files ({}) and is no tier folder; give an empty or a new folder", options.path, name));
    }
    if (Status written = WriteStoreId(files, options.path, options.store_id); !written.ok()) return written;
  } else {
    const StatusOr<std::string> id = ReadStoreId(files, options.path);
    if (!id.ok()) return id.status();
    if (*id != options.store_id) {
      return FailedPrecondition(fmt::format("{} holds records of '{}', this is '{}'; give another folder, or remove it",
                                            options.path, *id, options.store_id));
    }
  }
  auto store = std::make_unique<DiskStore>(std::move(options), files, std::move(lock));
  if (Status loaded = store->Load(); !loaded.ok()) return loaded;
  return StatusOr<std::unique_ptr<TierStore>>(std::move(store));
}

StatusOr<DiskDescription> DescribeDiskFolder(const std::string& path, FileLayer& files, const bool check_payloads) {
  StatusOr<std::string> id = ReadStoreId(files, path);
  if (!id.ok()) return id.status();
  const StatusOr<FolderContent> content = ListFolder(files, path);
  if (!content.ok()) return content.status();
  DiskDescription out;
  out.store_id = *std::move(id);
  out.partials = static_cast<int64_t>(content->partials.size());
  const Digest store = Sha256(out.store_id);
  for (const FoundRecord& record : content->records) {
    const std::string file_path = path + "/" + record.name;
    const int opened = files.Open(file_path, O_RDONLY);
    if (opened == -ENOENT) continue;  // Evicted by the daemon meanwhile.
    if (opened < 0) return FromError(opened, file_path, "open");
    const OpenFile file(files, opened);
    StatusOr<CheckedHead> head = ReadHead(files, file.fd(), file_path, record.key, store);
    Status sound = head.ok() ? OkStatus() : head.status();
    if (sound.ok() && check_payloads) {
      sound =
          ReadSections(files, file.fd(), file_path, *head, [](int64_t, std::span<const std::byte>) { return true; });
    }
    if (!sound.ok()) {
      out.damaged.push_back(sound.message());
      continue;
    }
    ++out.records;
    out.file_bytes += record.bytes;
    out.header_bytes += head->start.header_bytes;
    out.payload_bytes += head->start.payload_bytes;
    out.payload_bytes_max = std::max(out.payload_bytes_max, head->start.payload_bytes);
    if (out.records == 1) out.oldest_use_ns = record.modified_ns;
    out.newest_use_ns = record.modified_ns;
  }
  return out;
}

bool IsDiskFolder(const std::string& path, FileLayer& files) {
  const int opened = files.Open(path + "/store", O_RDONLY);
  if (opened < 0) return false;
  const OpenFile file(files, opened);
  std::string text(kStoreMagic.size(), '\0');
  return files.ReadAt(file.fd(), std::as_writable_bytes(std::span(text)), 0) ==
             static_cast<int64_t>(kStoreMagic.size()) &&
         text == kStoreMagic;
}

}  // namespace invar::cache
