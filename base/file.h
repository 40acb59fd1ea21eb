// Files: read-only maps, whole-file reads with a limit, and write-then-rename.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace invar {

// A read-only mapping of a whole file; unmapped when it dies. Movable. Threads: any.
class FileMap {
 public:
  // Errors: NOT_FOUND, INVALID_ARGUMENT (not a regular file), UNAVAILABLE (I/O), each naming the path.
  static StatusOr<FileMap> Open(const std::string& path);
  FileMap() = default;
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  ~FileMap();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Errors: NOT_FOUND, RESOURCE_EXHAUSTED above `bytes_max`, UNAVAILABLE; each names the path.
StatusOr<std::string> ReadFile(const std::string& path, int64_t bytes_max);
// The first line of a file of 4 KiB at most, as secrets stand; maybe empty. Its content is in no message. Errors: as
// ReadFile.
StatusOr<std::string> ReadSecretLine(const std::string& path);

// Writes `path`.partial; Commit syncs it and renames it over `path`, so that readers see the old or the new file, never
// a part. Destroyed without Commit: removed. The one partial name means that what a killed process left is written over
// by the next, not added to; a lock on it keeps two writers apart (the second waits). Threads: one.
class AtomicFile {
 public:
  static StatusOr<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Sizes the file to `bytes` and gives its memory for writing. At most once, instead of Append.
  StatusOr<std::span<std::byte>> MapForWriting(int64_t bytes);
  Status Append(std::string_view data);
  Status Commit();

 private:
  AtomicFile(int fd, std::string path, std::string partial_path);

  int fd_ = -1;
  std::string path_;
  std::string partial_path_;
  std::byte* map_ = nullptr;
  size_t map_bytes_ = 0;
};

}  // namespace invar
