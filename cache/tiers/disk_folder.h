// The folder of a disk store: what its files are called, and the small ones among them.
//   FOLDER/lock                        held by the one process that uses the folder
//   FOLDER/store                       whose records these are: another model's folder is refused, not overwritten
//   FOLDER/dropped                     which spaces were dropped, and when: older records of theirs are void
//   FOLDER/KEY-SPACE-SEQUENCE.record   a record; complete since the moment it has this name
//   FOLDER/....partial                 something on its way; removed at open
// store and dropped are text with a SHA-256 of it at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/tiers/drop_log.h"
#include "cache/tiers/file_layer.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

inline constexpr std::string_view kRecordSuffix = ".record";
inline constexpr std::string_view kPartialSuffix = ".partial";

// ENOSPC and EDQUOT are no room, ENOENT is not there, all else is the disk's or the system's fault.
Status FromError(int64_t result, const std::string& path, const char* doing);

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

// What the name of a record's file says, all in hexadecimal: KEY-SPACE-SEQUENCE.
struct RecordName {
  TierKey key{};
  TierSpace space{};
  uint64_t sequence = 0;
};
std::string StemOf(const RecordName& name);

struct FoundRecord {
  std::string file;
  RecordName name;
  int64_t bytes = 0;
  int64_t modified_ns = 0;
};

struct FolderContent {
  std::vector<FoundRecord> records;  // Oldest use first.
  std::vector<std::string> partials;
  std::vector<std::string> foreign;
  bool has_store = false;
};
StatusOr<FolderContent> ListFolder(FileLayer& files, const std::string& path);

// Errors: FAILED_PRECONDITION where it is damaged; those of the system.
StatusOr<std::string> ReadStoreId(FileLayer& files, const std::string& folder);
// Whole or not at all, and on the disk when it returns; so is WriteDrops.
Status WriteStoreId(FileLayer& files, const std::string& folder, const std::string& store_id);
// Whether it is one line, and not too long.
bool FitsStoreFile(const std::string& store_id);
// Whether there is a store file of this version.
bool HasStoreFile(FileLayer& files, const std::string& folder);

// Errors: DATA_LOSS where the list is damaged; those of the system. No list is an empty one.
StatusOr<DropLog> ReadDrops(FileLayer& files, const std::string& folder);
Status WriteDrops(FileLayer& files, const std::string& folder, const DropLog& drops);

}  // namespace invar::cache
