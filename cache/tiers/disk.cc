// The disk store: one file a record (disk_format.h) in one folder (disk_folder.h), least recently used out first.
// A record is written under its partial name, synced and renamed: a process killed at any moment leaves a partial file
// at worst. What a power cut may do beyond that (a name without its content) fails the checksums. Every version of a
// record has a name of its own, so that no lock is held over I/O: readers of a replaced or evicted file keep it open.
// The order of use outlives a restart in the files' modification times.
// A drop writes one line to the list of drops before it says that it is done, however many records it voids: who is
// killed before all their files are gone finds the line at open, and removes them then. Sequences say what was first;
// names say space and sequence, so that no file need be read for that.
// Reads and writes go around the page cache where the file system allows it (O_DIRECT): what is hot is in memory
// already, and the measured bandwidth is that of the disk.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "cache/tiers/disk_folder.h"
#include "cache/tiers/disk_format.h"
#include "cache/tiers/drop_log.h"
#include "cache/tiers/fault_log.h"
#include "cache/tiers/file_layer.h"
#include "cache/tiers/lru_index.h"
#include "cache/tiers/stores.h"

namespace invar::cache {
namespace {

// Older than what this process uses, and all alike: in the order in which they come.
constexpr TimeNs kBeforeStart = 0;

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

// A record's head, checked as far as it can be alone.
struct CheckedHead {
  RecordHead start;
  BlockBuffer head;
};

StatusOr<CheckedHead> ReadHead(FileLayer& files, const int fd, const std::string& path, const RecordName& name,
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
  if (start->key != name.key || start->space != name.space) {
    return DataLoss(fmt::format("disk: {}: is the record of another key or space", path));
  }
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
        reading_("reading from " + title()),
        writing_("writing to " + title()),
        direct_(options_.direct),
        index_(options_.budget_bytes) {}

  // Takes over what the folder holds; what exceeds the budget, was on its way or is void goes. Once, before other
  // calls.
  Status Load() {
    StatusOr<FolderContent> content = ListFolder(files_, options_.path);
    if (!content.ok()) return content.status();
    StatusOr<DropLog> drops = ReadDrops(files_, options_.path);
    // Without the list nobody knows which records are void.
    const bool all_void = drops.status().code() == StatusCode::kDataLoss;
    if (!drops.ok() && !all_void) return drops.status();
    if (all_void) Logger("cache")->warn("all records are dropped: {}", drops.status().message());
    std::vector<std::string> gone;
    for (const std::string& partial : content->partials) gone.push_back(options_.path + "/" + partial);
    {
      const MutexLock lock(mu_);
      for (const FoundRecord& record : content->records) {
        const auto& [key, space, sequence] = record.name;
        first_sequence_ = std::max(first_sequence_, sequence + 1);
        std::vector<Index::Entry> evicted;
        const Index::Entry* const same = index_.Find(key);
        // A newer version of the key is there already: this one should have gone when it was replaced.
        const bool is_old = same != nullptr && same->value.sequence > sequence;
        if (all_void || drops->Voids(space, sequence) || is_old ||
            !index_.Reserve(record.bytes, kBeforeStart, evicted)) {
          gone.push_back(options_.path + "/" + record.file);
          continue;
        }
        if (std::optional<Index::Entry> replaced =
                index_.Commit({key, record.bytes, {space, sequence}}, kBeforeStart)) {
          evicted.push_back(*std::move(replaced));
        }
        for (const Index::Entry& entry : evicted) gone.push_back(PathOf(entry));
      }
      if (drops.ok()) {
        for (const DropLog::Drop& drop : drops->drops()) first_sequence_ = std::max(first_sequence_, drop.sequence + 1);
      }
    }
    for (const std::string& path : gone) RemoveFile(path);
    {
      const MutexLock lock(mu_);
      // Where a file stays, so does the line that voids it.
      if (!unremoved_.empty() && drops.ok()) drops_ = *std::move(drops);
      if (!unremoved_.empty() && all_void) drops_.Add({}, first_sequence_++);
    }
    return all_void ? ListDrops() : OkStatus();
  }

  std::string_view name() const override { return "disk"; }
  std::string title() const override { return "the disk tier in " + options_.path; }

  std::vector<TierRecord> Inventory() override {
    std::vector<RecordName> names;
    {
      const MutexLock lock(mu_);
      index_.ForEach([&](const Index::Entry& entry) { names.push_back(NameOf(entry)); });
    }
    std::vector<TierRecord> records;
    for (const RecordName& name : names) {
      StatusOr<TierRecord> record = ReadRecord(name);
      if (record.ok()) records.push_back(*std::move(record));
    }
    return records;
  }

  StatusOr<std::vector<TierRecord>> Find(const std::span<const TierKey> keys, TierTransfer& call) override {
    std::vector<TierRecord> records;
    for (const TierKey& key : keys) {
      if (call.ended()) return CallEnded();
      std::optional<RecordName> name;
      {
        const MutexLock lock(mu_);
        if (const Index::Entry* const entry = index_.Find(key)) name = NameOf(*entry);
      }
      if (!name) continue;
      StatusOr<TierRecord> record = ReadRecord(*name);
      if (record.ok()) records.push_back(*std::move(record));
    }
    return records;
  }

  Status Put(const TierRecord& record, TierTransfer& payload) override {
    const RecordLayout layout(static_cast<int64_t>(record.header.size()), record.payload_bytes);
    const RecordName name{record.key, record.space, payload.sequence()};
    std::vector<Index::Entry> evicted;
    {
      const MutexLock lock(mu_);
      if (drops_.Voids(name.space, name.sequence)) return DroppedMeanwhile();
      if (!index_.Reserve(layout.file_bytes, payload.LastUse(record.used_at), evicted)) {
        return ResourceExhausted(
            fmt::format("disk: a record of {} bytes does not fit the budget of {} beside later used", layout.file_bytes,
                        index_.budget_bytes()));
      }
    }
    RemoveEntries(evicted);
    const std::string stem = options_.path + "/" + StemOf(name);
    const std::string partial = stem + std::string(kPartialSuffix);
    bool has_file = false;  // Where not even that could be made, nothing is left to remove.
    Status written = WriteRecord(partial, record, layout, payload, has_file);
    if (written.code() == StatusCode::kResourceExhausted) {
      // The disk is full below our budget: as many bytes as are missing at most, then once more.
      if (has_file) RemoveFile(partial);
      has_file = false;
      {
        const MutexLock lock(mu_);
        evicted = index_.EvictOldest(layout.file_bytes, payload.LastUse(record.used_at));
      }
      RemoveEntries(evicted);
      if (!evicted.empty()) written = WriteRecord(partial, record, layout, payload, has_file);
    }
    const std::string path = PathOf(name);
    if (written.ok()) {
      if (const int renamed = files_.Rename(partial, path); renamed < 0) written = FromError(renamed, path, "rename");
    }
    const bool has_name = written.ok();
    std::optional<Index::Entry> replaced;
    int64_t modified_ns = 0;
    {
      const MutexLock lock(mu_);
      if (drops_.Voids(name.space, name.sequence)) written = DroppedMeanwhile();
      if (!written.ok()) {
        index_.Cancel(layout.file_bytes);
      } else {
        const TimeNs used_at = payload.SettleUse(record.used_at);
        modified_ns = ModifiedAt(used_at);
        replaced = index_.Commit({record.key, layout.file_bytes, {name.space, name.sequence}}, used_at);
      }
    }
    writing_.Note(written);
    if (!written.ok() && has_file) RemoveFile(has_name ? path : partial);
    if (written.ok()) RememberUse(name, modified_ns);
    if (replaced) RemoveFile(PathOf(*replaced));
    return written;
  }

  StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) override {
    std::optional<RecordName> name;
    int64_t modified_ns = 0;
    {
      const MutexLock lock(mu_);
      if (const Index::Entry* const entry = index_.Use(key, TierRecord::kJustNow)) name = NameOf(*entry);
      modified_ns = ModifiedAt(TierRecord::kJustNow);
    }
    if (!name) return NotFound("disk: no such record");
    StatusOr<std::string> header = ReadInto(*name, sink);
    reading_.Note(header.status());
    if (header.ok()) {
      RememberUse(*name, modified_ns);
    } else {
      DropIfUnusable(header.status(), *name);
    }
    return header;
  }

  Status Drop(const TierSpaces& of, TierTransfer& call) override {
    std::vector<Index::Entry> dropped;
    {
      const MutexLock lock(mu_);
      drops_.Add(of, call.sequence());
      dropped = index_.RemoveIf([&](const Index::Entry& entry) REQUIRES_LOCK(mu_) {
        return drops_.Voids(entry.value.space, entry.value.sequence);
      });
    }
    Status listed = ListDrops();
    writing_.Note(listed);
    RemoveEntries(dropped);
    return listed;
  }

  bool Use(const TierKey& key, const TimeNs used_at) override {
    const MutexLock lock(mu_);
    return index_.Use(key, used_at) != nullptr;
  }

  std::vector<TierKey> TakeGone() override {
    const MutexLock lock(mu_);
    return index_.TakeGone();
  }

  uint64_t first_sequence() const override {
    const MutexLock lock(mu_);
    return first_sequence_;
  }

  TierContents Contents() const override {
    const MutexLock lock(mu_);
    return {index_.count(), index_.bytes(), index_.budget_bytes(), index_.evictions(), damaged_};
  }

 private:
  struct Version {
    TierSpace space{};
    uint64_t sequence = 0;
  };
  using Index = LruIndex<Version>;

  static RecordName NameOf(const Index::Entry& entry) { return {entry.key, entry.value.space, entry.value.sequence}; }
  std::string PathOf(const RecordName& name) const {
    return options_.path + "/" + StemOf(name) + std::string(kRecordSuffix);
  }
  std::string PathOf(const Index::Entry& entry) const { return PathOf(NameOf(entry)); }

  // One after the other, so that no list overtakes a longer one.
  Status ListDrops() {
    const MutexLock writing(writing_drops_);  // Held over I/O: only drops wait for it.
    DropLog drops;
    {
      const MutexLock lock(mu_);
      drops = drops_;
    }
    return WriteDrops(files_, options_.path, drops);
  }

  // For the order after a restart only: what it costs if it fails is a worse order.
  void RememberUse(const RecordName& name, const int64_t modified_ns) { files_.SetModified(PathOf(name), modified_ns); }
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

  // `has_file`: set where the file is there, whole or not.
  Status WriteRecord(const std::string& path, const TierRecord& record, const RecordLayout& layout,
                     TierTransfer& payload, bool& has_file) {
    StatusOr<OpenFile> file = OpenRecord(path, O_WRONLY | O_CREAT | O_EXCL);
    if (!file.ok()) return file.status();
    has_file = true;
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

  StatusOr<std::string> ReadInto(const RecordName& name, TierTransfer& sink) {
    const std::string path = PathOf(name);
    StatusOr<OpenFile> file = OpenRecord(path, O_RDONLY);
    if (!file.ok()) return file.status();
    StatusOr<CheckedHead> head = ReadHead(files_, file->fd(), path, name, store_);
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

  StatusOr<TierRecord> ReadRecord(const RecordName& name) {
    const std::string path = PathOf(name);
    const StatusOr<OpenFile> file = OpenRecord(path, O_RDONLY);
    StatusOr<CheckedHead> head =
        file.ok() ? ReadHead(files_, file->fd(), path, name, store_) : StatusOr<CheckedHead>(file.status());
    reading_.Note(head.status());
    if (!head.ok()) {
      DropIfUnusable(head.status(), name);
      return head.status();
    }
    return TierRecord{.key = name.key,
                      .space = name.space,
                      .header = std::string(HeaderIn(head->head.bytes())),
                      .payload_bytes = head->start.payload_bytes};
  }

  // A record that is damaged or gone will not get better; one that could not be opened or read in time may.
  void DropIfUnusable(const Status& status, const RecordName& name) {
    if (status.code() != StatusCode::kDataLoss && status.code() != StatusCode::kNotFound) return;
    {
      const MutexLock lock(mu_);
      const Index::Entry* const entry = index_.Find(name.key);
      // Not a newer version of it.
      if (entry == nullptr || entry->value.sequence != name.sequence) return;
      index_.Lose(name.key);
      damaged_ += status.code() == StatusCode::kDataLoss ? 1 : 0;
    }
    RemoveFile(PathOf(name));
  }

  void RemoveEntries(const std::vector<Index::Entry>& entries) {
    for (const Index::Entry& entry : entries) RemoveFile(PathOf(entry));
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
  FaultLog reading_, writing_;

  std::atomic<bool> direct_;  // Only ever goes to false.

  Mutex writing_drops_;  // Before mu_.
  mutable Mutex mu_;
  Index index_ GUARDED_BY(mu_);
  DropLog drops_ GUARDED_BY(mu_);
  int64_t damaged_ GUARDED_BY(mu_) = 0;
  uint64_t first_sequence_ GUARDED_BY(mu_) = 1;
  int64_t latest_ns_ GUARDED_BY(mu_) = 0;  // Of the latest use of all, in the time of the files.
  std::vector<std::string> unremoved_ GUARDED_BY(mu_);
};

}  // namespace

StatusOr<std::unique_ptr<TierStore>> MakeDiskStore(DiskOptions options, FileLayer& files) {
  Check(FitsStoreFile(options.store_id), "a store id is one line", options.store_id);
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
      const std::string& name = content->records.empty() ? content->foreign.front() : content->records.front().file;
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
  const StatusOr<DropLog> drops = ReadDrops(files, path);
  if (!drops.ok()) return drops.status();
  out.partials = static_cast<int64_t>(content->partials.size());
  const Digest store = Sha256(out.store_id);
  for (const FoundRecord& record : content->records) {
    if (drops->Voids(record.name.space, record.name.sequence)) continue;
    const std::string file_path = path + "/" + record.file;
    const int opened = files.Open(file_path, O_RDONLY);
    if (opened == -ENOENT) continue;  // Evicted by the daemon meanwhile.
    if (opened < 0) return FromError(opened, file_path, "open");
    const OpenFile file(files, opened);
    StatusOr<CheckedHead> head = ReadHead(files, file.fd(), file_path, record.name, store);
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

bool IsDiskFolder(const std::string& path, FileLayer& files) { return HasStoreFile(files, path); }

}  // namespace invar::cache
