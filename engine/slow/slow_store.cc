// The file of slow_store.h.
#include "engine/slow/slow_store.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/check.h"

namespace invar::engine {
namespace {

constexpr const char* kPathField = "engine.speculation.slow_tier.path";

Status Refused(const std::string& what, const int64_t error, const char* const fix, const char* const field) {
  return InvalidArgument(std::string(field) + ": " + what + ": " + std::strerror(static_cast<int>(-error)) + "; " + fix,
                         field);
}

}  // namespace

SlowStore::SlowStore(const SlowTierOptions& options, std::unique_ptr<cache::FileLayer> own_files)
    : options_(options),
      own_files_(std::move(own_files)),
      files_(own_files_ != nullptr ? *own_files_ : *options.files) {}

SlowStore::~SlowStore() {
  Check(used_bytes_ == 0, "all ranges are given back", used_bytes_);
  if (read_fd_ >= 0 && read_fd_ != write_fd_) files_.Close(read_fd_);
  if (write_fd_ >= 0) files_.Close(write_fd_);
}

StatusOr<std::unique_ptr<SlowStore>> SlowStore::Open(const SlowTierOptions& options) {
  std::unique_ptr<SlowStore> store(
      new SlowStore(options, options.files == nullptr ? cache::MakeSystemFiles() : nullptr));
  if (Status s = store->OpenFiles(); !s.ok()) return s;
  return store;
}

// Locked before its name goes: who opens the name in between has the same file, and is told.
Status SlowStore::OpenFiles() {
  const std::string name = options_.path + "/slow_kv";
  write_fd_ = files_.Open(name, O_RDWR | O_CREAT | O_TRUNC);
  if (write_fd_ < 0) {
    return Refused("wanted to make a file in \"" + options_.path + "\"", write_fd_, "name a folder that can be written",
                   kPathField);
  }
  if (const int locked = files_.LockExclusive(write_fd_); locked < 0) {
    return Refused("\"" + name + "\" is being opened by another process", locked, "start again", kPathField);
  }
  read_fd_ = options_.direct ? files_.Open(name, O_RDONLY | O_DIRECT) : write_fd_;
  files_.Remove(name);
  if (read_fd_ < 0) {
    return Refused("wanted to read \"" + name + "\" around the page cache", read_fd_,
                   "set it to false or name a folder on a disk that allows it", "engine.speculation.slow_tier.direct");
  }
  return OkStatus();
}

// --- Space ---

std::optional<SlowStore::Range> SlowStore::Take(const int64_t bytes) {
  Check(bytes > 0 && bytes % kBlockBytes == 0, "ranges are whole blocks", bytes);
  if (used_bytes_ + bytes > options_.budget_bytes) return std::nullopt;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < bytes) continue;
    const auto [offset, size] = *it;
    free_.erase(it);
    if (size > bytes) free_.emplace(offset + bytes, size - bytes);
    used_bytes_ += bytes;
    return Range(this, offset, bytes);
  }
  if (end_ + bytes > options_.budget_bytes) return std::nullopt;  // There is room, but not in one piece.
  used_bytes_ += bytes;
  end_ += bytes;
  return Range(this, end_ - bytes, bytes);
}

SlowStore::Range::~Range() {
  if (store_ != nullptr) store_->GiveBack(offset_, bytes_);
}

void SlowStore::GiveBack(int64_t offset, int64_t bytes) {
  used_bytes_ -= bytes;
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    Check(before->first + before->second <= offset, "a range is given back once", offset);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    free_.erase(after);
  }
  if (offset + bytes == end_) {
    end_ = offset;
  } else {
    free_.emplace(offset, bytes);
  }
}

// --- Bytes ---

Status SlowStore::Write(int64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const int64_t written = files_.WriteAt(write_fd_, from, offset);
    if (written == -ENOSPC || written == -EDQUOT) {
      return ResourceExhausted("the disk of engine.speculation.slow_tier.path is full");
    }
    if (written <= 0) {
      return Unavailable("writing to engine.speculation.slow_tier.path failed: " +
                         std::string(std::strerror(static_cast<int>(-written))));
    }
    offset += written;
    from = from.subspan(static_cast<size_t>(written));
  }
  return OkStatus();
}

bool SlowStore::MapAt(std::byte* const at, const int64_t offset, const int64_t bytes) const {
  if (!maps()) return false;
  return ::mmap(at, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED | MAP_FIXED, write_fd_, offset) == at;
}

// What the system cuts short goes on at the last whole block, as O_DIRECT wants it.
Status SlowStore::Read(const int64_t offset, const int64_t bytes, std::byte* const to) {
  for (int64_t done = 0; done < bytes;) {
    const std::span<std::byte> rest(to + done, static_cast<size_t>(WholeBlocks(bytes) - done));
    const int64_t read = files_.ReadAt(read_fd_, rest, offset + done);
    if (read < 0) {
      return Unavailable("reading from engine.speculation.slow_tier.path failed: " +
                         std::string(std::strerror(static_cast<int>(-read))));
    }
    if (done + read >= bytes) return OkStatus();
    const int64_t whole = read / kBlockBytes * kBlockBytes;
    if (whole == 0) return DataLoss("the file in engine.speculation.slow_tier.path is shorter than what was written");
    done += whole;
  }
  return OkStatus();
}

}  // namespace invar::engine
