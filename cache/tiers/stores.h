// The kinds of stores, one function a file: ram.cc, disk.cc, resp.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cache/tiers/byte_stream.h"
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

struct RemoteOptions {
  std::string address = {};   // "HOST:PORT" or "unix:PATH".
  std::string username = {};  // Empty: the server's default user.
  std::string password = {};  // Empty: no AUTH. Never logged.
  std::string secret = {};    // Of the deployment, for the MACs; at least 32 bytes. Never logged.
  std::string key_prefix = "invar";
  std::string store_id = {};
  int64_t ttl_ms = int64_t{24} * 3600 * 1000;
  TimeNs io_timeout = TimeNs{10} * 1'000'000'000;  // Of a whole call; an earlier deadline of the call wins.
  std::optional<TlsOptions> tls = {};
};

// Does not connect yet: a server that is down costs misses, not the start.
// Errors: INVALID_ARGUMENT for the secret and for the files of `tls`.
StatusOr<std::unique_ptr<TierStore>> MakeRespStore(RemoteOptions options, const Clock& clock);

}  // namespace invar::cache
