// The packed file beside a model: weights already in the backend's layout, mapped read-only at start, so that a warm
// start takes milliseconds and several daemons share one copy in memory.
// Layout: "INVARPK1", u64 bytes of the JSON header, SHA-256 of it, the header; payload from the next multiple of 4096.
// It is a cache: any doubt (other plan, other sources, wrong size, header or blocks that do not match) means packing
// anew.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace invar::models {

// A file the packed one was made from, by all that the file system says of it: where this is equal, so are the
// contents, since the time of the last change cannot be set.
struct PackedSource {
  std::string name;  // Without folder.
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  int64_t inode = 0;
  bool operator==(const PackedSource&) const = default;
};

// What must be equal for a packed file to be used: its sources, or else their contents, as in a folder that was copied
// or unpacked together with it, with the old times.
struct PackedKey {
  std::string layout;  // Hex SHA-256 of plan, numerics and configuration.
  std::vector<PackedSource> sources;
  int64_t payload_bytes = 0;
  std::function<std::string()> fingerprint{};  // Hex digest of what the sources hold; reads them all.
};

struct PackedFile {
  FileMap map;
  std::span<const std::byte> payload{};
  std::string fingerprint{};
  std::vector<uint64_t> checksums{};  // One a block of the payload.
  bool checked_whole = false;         // Every block was, not only some.
};

// Nothing where there is no usable file; `why` then says what was wrong with the one that is there, if any.
// Blocks of the payload are checked against their checksums: all of them up to 64 MiB, 64 evenly spread ones above,
// since reading every byte of a large model would cost the warm start it is there for. The rest is for PackedCheck.
std::optional<PackedFile> OpenPackedFile(const std::string& path, const PackedKey& key, std::string& why);

// Compares every block of a payload with its checksum while it is already in use, on a thread of its own that runs only
// where the machine has nothing else to do.
class PackedCheck {
 public:
  // `end` is called once on that thread, unless this dies before: with the first block that does not match, or with
  // nothing where all do. Requires: `payload` outlives this; `checksums` has one a block.
  PackedCheck(std::span<const std::byte> payload, std::vector<uint64_t> checksums,
              std::function<void(std::optional<int64_t> damaged_block)> end);
  PackedCheck(const PackedCheck&) = delete;
  PackedCheck& operator=(const PackedCheck&) = delete;

 private:
  std::jthread thread_;  // Stops and joins in its destructor.
};

// Effects: writes `path` atomically; `fill` gives the payload, in zeroed memory. Errors: UNAVAILABLE (read-only folder,
// full disk), or what `fill` returned.
Status WritePackedFile(const std::string& path, const PackedKey& key, const std::string& fingerprint,
                       const std::function<Status(std::span<std::byte>)>& fill);

}  // namespace invar::models
