// Files by POSIX calls: every error names the path and the reason of the system.
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace invar {
namespace {

Status FromErrno(const std::string& path, const char* doing) {
  const int error = errno;
  std::string text = fmt::format("{}: {}: {}", path, doing, std::strerror(error));
  return error == ENOENT ? NotFound(std::move(text)) : Unavailable(std::move(text));
}

// Closes on every way out.
class FileDescriptor {
 public:
  explicit FileDescriptor(const int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Not blocking: a pipe in a file's place would wait for a writer, instead of being refused for what it is.
int OpenForReading(const std::string& path) { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }

StatusOr<int64_t> RegularFileBytes(const int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return FromErrno(path, "stat");
  if (!S_ISREG(info.st_mode)) return InvalidArgument(fmt::format("{}: wanted a regular file", path));
  return static_cast<int64_t>(info.st_size);
}

}  // namespace

StatusOr<FileMap> FileMap::Open(const std::string& path) {
  const FileDescriptor fd(OpenForReading(path));
  if (fd.get() < 0) return FromErrno(path, "open");
  StatusOr<int64_t> bytes = RegularFileBytes(fd.get(), path);
  if (!bytes.ok()) return bytes.status();
  FileMap map;
  if (*bytes == 0) return map;  // mmap refuses an empty range.
  void* data = mmap(nullptr, static_cast<size_t>(*bytes), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return FromErrno(path, "map");
  map.data_ = static_cast<const std::byte*>(data);
  map.size_ = static_cast<size_t>(*bytes);
  return map;
}

FileMap::FileMap(FileMap&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

FileMap::~FileMap() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

StatusOr<std::string> ReadFile(const std::string& path, const int64_t bytes_max) {
  const FileDescriptor fd(OpenForReading(path));
  if (fd.get() < 0) return FromErrno(path, "open");
  StatusOr<int64_t> bytes = RegularFileBytes(fd.get(), path);
  if (!bytes.ok()) return bytes.status();
  if (*bytes > bytes_max) {
    return ResourceExhausted(fmt::format("{}: {} bytes, at most {} are read", path, *bytes, bytes_max));
  }
  std::string text(static_cast<size_t>(*bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0) return FromErrno(path, "read");
    if (got == 0) return Unavailable(fmt::format("{}: shrank while it was read", path));
    done += static_cast<size_t>(got);
  }
  return text;
}

StatusOr<std::string> ReadSecretLine(const std::string& path) {
  constexpr int64_t kBytesMax = 4096;
  StatusOr<std::string> text = ReadFile(path, kBytesMax);
  if (!text.ok()) return text.status();
  return text->substr(0, text->find_first_of("\r\n"));
}

AtomicFile::AtomicFile(const int fd, std::string path, std::string partial_path)
    : fd_(fd), path_(std::move(path)), partial_path_(std::move(partial_path)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      partial_path_(std::move(other.partial_path_)),
      map_(std::exchange(other.map_, nullptr)),
      map_bytes_(std::exchange(other.map_bytes_, 0)) {}

AtomicFile::~AtomicFile() {
  if (map_ != nullptr) munmap(map_, map_bytes_);
  if (fd_ < 0) return;
  unlink(partial_path_.c_str());  // Before the lock goes with the descriptor.
  close(fd_);
}

StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  const std::string partial = path + ".partial";
  for (;;) {
    const int fd = open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return FromErrno(partial, "create");
    // Whoever held the lock may have renamed or removed what was opened: then it is no longer the partial file.
    struct stat opened {
    }, named{};
    const bool locked = flock(fd, LOCK_EX) == 0;
    if (locked && fstat(fd, &opened) == 0 && stat(partial.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
        opened.st_dev == named.st_dev) {
      AtomicFile file(fd, path, partial);
      if (ftruncate(fd, 0) != 0) return FromErrno(partial, "truncate");
      return file;
    }
    const int error = errno;
    close(fd);
    errno = error;
    if (!locked && error != EINTR) return FromErrno(partial, "lock");
  }
}

StatusOr<std::span<std::byte>> AtomicFile::MapForWriting(const int64_t bytes) {
  Check(map_ == nullptr, "MapForWriting is called once");
  // posix_fallocate, so that a full disk is an error here and not a SIGBUS in the middle of packing.
  if (const int error = posix_fallocate(fd_, 0, bytes); error != 0) {
    errno = error;
    return FromErrno(partial_path_, "allocate");
  }
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (data == MAP_FAILED) return FromErrno(partial_path_, "map");
  map_ = static_cast<std::byte*>(data);
  map_bytes_ = static_cast<size_t>(bytes);
  return std::span<std::byte>(map_, map_bytes_);
}

Status AtomicFile::Append(const std::string_view data) {
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t put = write(fd_, data.data() + done, data.size() - done);
    if (put < 0) return FromErrno(partial_path_, "write");
    done += static_cast<size_t>(put);
  }
  return OkStatus();
}

Status AtomicFile::Commit() {
  if (map_ != nullptr && msync(map_, map_bytes_, MS_SYNC) != 0) return FromErrno(partial_path_, "sync");
  if (fsync(fd_) != 0) return FromErrno(partial_path_, "sync");
  if (rename(partial_path_.c_str(), path_.c_str()) != 0) return FromErrno(path_, "rename");
  close(std::exchange(fd_, -1));
  return OkStatus();
}

}  // namespace invar
