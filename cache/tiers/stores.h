// The kinds of stores, one function a file: ram.cc, disk.cc, resp.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/tiers/file_layer.h"
#include "cache/tiers/tier_store.h"

namespace invar::cache {

// Plain memory, least recently used out first. A record counts header and payload.
std::unique_ptr<TierStore> MakeRamStore(int64_t budget_bytes);

struct DiskOptions {
  std::string path;  // Made where its parent exists.
  int64_t budget_bytes = 0;
  std::string store_id;  // One line: model fingerprint and numerics id.
  bool direct = true;    // Around the page cache, where the file system can.
};

// Requires: `files` outlives the store.
// Errors: FAILED_PRECONDITION where another process holds the folder, where it has the records of another store, or
// other files; UNAVAILABLE and NOT_FOUND from the system; each names the path and what to do.
StatusOr<std::unique_ptr<TierStore>> MakeDiskStore(DiskOptions options, FileLayer& files);

// What is in a folder, without its lock: a daemon may be using it.
struct DiskDescription {
  std::string store_id;
  int64_t records = 0;
  int64_t file_bytes = 0;
  int64_t header_bytes = 0;
  int64_t payload_bytes = 0;
  int64_t payload_bytes_max = 0;
  int64_t oldest_use_ns = 0;  // Since 1970; of sound records.
  int64_t newest_use_ns = 0;
  int64_t partials = 0;              // Records on their way, or left by a killed process.
  std::vector<std::string> damaged;  // Why, one a record.
};
StatusOr<DiskDescription> DescribeDiskFolder(const std::string& path, FileLayer& files, bool check_payloads);
// Whether a folder was made by MakeDiskStore.
bool IsDiskFolder(const std::string& path, FileLayer& files);

}  // namespace invar::cache
