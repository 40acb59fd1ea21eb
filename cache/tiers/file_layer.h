// FileLayer: the system calls of the disk store, so that a test can let each of them fail in turn.
// Results are the system's own: a count or descriptor >= 0, or minus an errno. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace invar::cache {

class FileLayer {
 public:
  struct FolderEntry {
    std::string name;
    int64_t bytes = 0;
    int64_t modified_ns = 0;  // Since 1970.
  };

  virtual ~FileLayer() = default;
  // `flags` as of open(2); O_CLOEXEC is added, files are made with mode 0600: prompts of users can be told from them.
  virtual int Open(const std::string& path, int flags) = 0;
  virtual int Close(int fd) = 0;
  virtual int64_t ReadAt(int fd, std::span<std::byte> to, int64_t offset) = 0;
  virtual int64_t WriteAt(int fd, std::span<const std::byte> from, int64_t offset) = 0;
  virtual int Sync(int fd) = 0;  // Data, and what is needed to find them.
  virtual int64_t BytesOf(int fd) = 0;
  virtual int LockExclusive(int fd) = 0;  // Does not wait: -EWOULDBLOCK.
  virtual int Rename(const std::string& from, const std::string& to) = 0;
  virtual int Remove(const std::string& path) = 0;
  virtual int64_t NowNs() = 0;  // Since 1970, as the times of files.
  virtual int SetModified(const std::string& path, int64_t at_ns) = 0;
  virtual int MakeFolder(const std::string& path) = 0;  // Mode 0700.
  // Regular files in no order, without those that vanish meanwhile.
  virtual int List(const std::string& path, std::vector<FolderEntry>& entries) = 0;
};

std::unique_ptr<FileLayer> MakeSystemFiles();

}  // namespace invar::cache
