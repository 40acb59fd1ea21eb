// FaultyFiles: the system's files for tests of the disk store, where calls fail, hang, do a part of their work or find
// the disk full.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cache/tiers/file_layer.h"

namespace invar::cache {

// The system's files, of which the n-th call fails, or all beyond some bytes on the disk.
class FaultyFiles final : public FileLayer {
 public:
  static constexpr int kShort = -1;  // Not an errno: the call does a part of its work.

  // The n-th call from now on (1 = the next) fails so; 0: none.
  void FailCall(const int64_t n, const int error) {
    left_ = n;
    error_ = error;
  }
  // Reads and writes of files that are no records do so many bytes at most.
  void CutSmallFilesAt(const int64_t bytes) { piece_bytes_ = bytes; }
  int64_t cut() const { return cut_; }
  bool has_failed() const { return left_ <= 0; }
  void LimitDisk(const int64_t bytes) { disk_bytes_max_ = bytes; }
  int64_t removes() const { return removes_; }
  // Reads and writes do not come back until this ends.
  void Hang(const bool hangs) {
    const MutexLock lock(mu_);
    hangs_ = hangs;
    hang_ends_.NotifyAll();
  }

  int Open(const std::string& path, const int flags) override {
    if (const int error = Fault()) return error == kShort ? -EIO : -error;
    const int fd = files_->Open(path, flags);
    if (fd >= 0) {
      const MutexLock lock(mu_);
      paths_[fd] = path;
    }
    return fd;
  }
  int Close(const int fd) override {
    // Fails as on NFS: the descriptor is gone all the same.
    const int error = Fault();
    const int closed = files_->Close(fd);
    return error == 0 ? closed : error == kShort ? -EIO : -error;
  }
  int64_t ReadAt(const int fd, const std::span<std::byte> to, const int64_t offset) override {
    AwaitHang();
    if (const int error = Fault()) {
      return error == kShort ? files_->ReadAt(fd, to.first(ShortOf(to.size())), offset) : -error;
    }
    return files_->ReadAt(fd, to.first(PieceOf(fd, to.size())), offset);
  }
  int64_t WriteAt(const int fd, std::span<const std::byte> from, const int64_t offset) override {
    AwaitHang();
    if (const int error = Fault()) {
      return error == kShort ? files_->WriteAt(fd, from.first(ShortOf(from.size())), offset) : -error;
    }
    from = from.first(PieceOf(fd, from.size()));
    {
      const MutexLock lock(mu_);
      int64_t& file_bytes = bytes_[paths_[fd]];
      const int64_t grown = std::max(file_bytes, offset + static_cast<int64_t>(from.size()));
      if (disk_bytes_ + grown - file_bytes > disk_bytes_max_) return -ENOSPC;
      disk_bytes_ += grown - file_bytes;
      file_bytes = grown;
    }
    return files_->WriteAt(fd, from, offset);
  }
  int Sync(const int fd) override {
    return FaultOr([&] { return files_->Sync(fd); });
  }
  int64_t BytesOf(const int fd) override {
    if (const int error = Fault()) return error == kShort ? -EIO : -error;
    return files_->BytesOf(fd);
  }
  int LockExclusive(const int fd) override {
    return FaultOr([&] { return files_->LockExclusive(fd); });
  }
  int Rename(const std::string& from, const std::string& to) override {
    return FaultOr([&] {
      const MutexLock lock(mu_);
      bytes_[to] = bytes_[from];
      bytes_.erase(from);
      return files_->Rename(from, to);
    });
  }
  int Remove(const std::string& path) override {
    ++removes_;
    return FaultOr([&] {
      const MutexLock lock(mu_);
      disk_bytes_ -= bytes_[path];
      bytes_.erase(path);
      return files_->Remove(path);
    });
  }
  int64_t NowNs() override { return files_->NowNs(); }
  int SetModified(const std::string& path, const int64_t at_ns) override {
    return FaultOr([&] { return files_->SetModified(path, at_ns); });
  }
  int MakeFolder(const std::string& path) override {
    return FaultOr([&] { return files_->MakeFolder(path); });
  }
  int List(const std::string& path, std::vector<FolderEntry>& entries) override {
    return FaultOr([&] { return files_->List(path, entries); });
  }

 private:
  void AwaitHang() {
    const MutexLock lock(mu_);
    while (hangs_) hang_ends_.Wait(mu_);
  }
  size_t PieceOf(const int fd, const size_t bytes) {
    const MutexLock lock(mu_);
    const std::string& path = paths_[fd];
    const bool is_small = path.find("/store") != std::string::npos || path.find("/dropped") != std::string::npos;
    if (!is_small || static_cast<int64_t>(bytes) <= piece_bytes_) return bytes;
    ++cut_;
    return static_cast<size_t>(piece_bytes_);
  }
  static size_t ShortOf(const size_t count) { return count > 1 ? count / 2 : count; }
  // 0: none; else the error.
  int Fault() { return left_ > 0 && --left_ == 0 ? error_ : 0; }
  template <typename Call>
  int FaultOr(const Call& call) {
    const int error = Fault();
    return error == 0 ? call() : error == kShort ? -EIO : -error;
  }

  const std::unique_ptr<FileLayer> files_ = MakeSystemFiles();
  std::atomic<int64_t> left_ = 0;
  std::atomic<int64_t> removes_ = 0;
  std::atomic<int64_t> piece_bytes_ = INT64_MAX;
  std::atomic<int64_t> cut_ = 0;
  int error_ = 0;
  Mutex mu_;
  CondVar hang_ends_;
  bool hangs_ GUARDED_BY(mu_) = false;
  int64_t disk_bytes_max_ = INT64_MAX / 2;
  int64_t disk_bytes_ GUARDED_BY(mu_) = 0;
  std::map<int, std::string> paths_ GUARDED_BY(mu_);
  std::map<std::string, int64_t> bytes_ GUARDED_BY(mu_);
};

}  // namespace invar::cache
