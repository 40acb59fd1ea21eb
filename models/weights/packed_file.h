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
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace invar::models {

// A file the packed one was made from.
struct PackedSource {
  std::string name;  // Without folder.
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  bool operator==(const PackedSource&) const = default;
};

// What must be equal for a packed file to be used.
struct PackedKey {
  std::string layout;  // Hex SHA-256 of plan, numerics and configuration.
  std::vector<PackedSource> sources;
  int64_t payload_bytes = 0;
};

struct PackedFile {
  FileMap map;
  std::span<const std::byte> payload{};
  std::string fingerprint{};
};

// Nothing where there is no usable file; `why` then says what was wrong with the one that is there, if any.
// Blocks of the payload are checked against their checksums: all of them up to 64 MiB, 64 evenly spread ones above,
// since reading every byte of a large model would cost the warm start it is there for.
std::optional<PackedFile> OpenPackedFile(const std::string& path, const PackedKey& key, std::string& why);

// Effects: writes `path` atomically; `fill` gives the payload, in zeroed memory. Errors: UNAVAILABLE (read-only folder,
// full disk), or what `fill` returned.
Status WritePackedFile(const std::string& path, const PackedKey& key, const std::string& fingerprint,
                       const std::function<Status(std::span<std::byte>)>& fill);

}  // namespace invar::models
