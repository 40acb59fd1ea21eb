// The system's calls, interrupted ones again.
#include "cache/tiers/file_layer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace invar::cache {
namespace {

template <typename Call>
auto Retrying(const Call& call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return -errno;
  }
}

constexpr int64_t kSecondNs = 1'000'000'000;

class SystemFiles final : public FileLayer {
 public:
  int Open(const std::string& path, const int flags) override {
    return Retrying([&] { return open(path.c_str(), flags | O_CLOEXEC, 0600); });
  }
  int Close(const int fd) override {
    // Once only: after EINTR the descriptor is gone all the same.
    return close(fd) == 0 || errno == EINTR ? 0 : -errno;
  }
  int64_t ReadAt(const int fd, const std::span<std::byte> to, const int64_t offset) override {
    return Retrying([&] { return pread(fd, to.data(), to.size(), offset); });
  }
  int64_t WriteAt(const int fd, const std::span<const std::byte> from, const int64_t offset) override {
    return Retrying([&] { return pwrite(fd, from.data(), from.size(), offset); });
  }
  int Sync(const int fd) override {
    return Retrying([&] { return fdatasync(fd); });
  }
  int64_t BytesOf(const int fd) override {
    struct stat info {};
    return fstat(fd, &info) == 0 ? static_cast<int64_t>(info.st_size) : -errno;
  }
  int LockExclusive(const int fd) override {
    return Retrying([&] { return flock(fd, LOCK_EX | LOCK_NB); });
  }
  int Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? 0 : -errno;
  }
  int Remove(const std::string& path) override { return unlink(path.c_str()) == 0 ? 0 : -errno; }
  int64_t NowNs() override {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * kSecondNs + now.tv_nsec;
  }
  int SetModified(const std::string& path, const int64_t at_ns) override {
    const timespec at{.tv_sec = at_ns / kSecondNs, .tv_nsec = at_ns % kSecondNs};
    const std::array<timespec, 2> times = {at, at};  // Of access and of modification.
    return utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0 ? 0 : -errno;
  }
  int MakeFolder(const std::string& path) override { return mkdir(path.c_str(), 0700) == 0 ? 0 : -errno; }
  int List(const std::string& path, std::vector<FolderEntry>& entries) override {
    DIR* const folder = opendir(path.c_str());
    if (folder == nullptr) return -errno;
    entries.clear();
    for (;;) {
      errno = 0;
      const dirent* const entry = readdir(folder);
      if (entry == nullptr) break;
      struct stat info {};
      if (fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (!S_ISREG(info.st_mode)) continue;
      entries.push_back(
          {entry->d_name, static_cast<int64_t>(info.st_size), info.st_mtim.tv_sec * kSecondNs + info.st_mtim.tv_nsec});
    }
    const int error = errno;
    closedir(folder);
    return -error;
  }
};

}  // namespace

std::unique_ptr<FileLayer> MakeSystemFiles() { return std::make_unique<SystemFiles>(); }

}  // namespace invar::cache
