// The .scd file, little endian:
//   8 bytes   "INVARSCD"
//   u32       version (kScdVersion)
//   u32       bytes of the header
//   header    JSON: both sides, shape, calibration, points, and of every tensor its place, rows and columns
//   payload   f32 tensors in the header's order, without gaps
//   32 bytes  SHA-256 of everything before
// Equal profiles are equal bytes. A reader trusts nothing: sizes are bounded before memory is taken, every tensor must
// have the shape that the header's other numbers ask for, and nothing may be left over.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/transfer/scd_profile.h"

namespace invar::engine {

inline constexpr uint32_t kScdVersion = 1;

std::string ToScdBytes(const ScdProfile& profile);
// Errors: DATA_LOSS (damaged, truncated), INVALID_ARGUMENT (another version, no such file), naming `path`, the field,
// wanted and found. Threads: any.
StatusOr<ScdProfile> ParseScd(std::string_view bytes, const std::string& path);

// Effects: replaces `path`, at once or not at all. Errors: UNAVAILABLE.
Status SaveScd(const ScdProfile& profile, const std::string& path);
// Errors: as ParseScd; NOT_FOUND, RESOURCE_EXHAUSTED (a file beyond 4 GiB).
StatusOr<ScdProfile> LoadScd(const std::string& path);
// With the checksum it ends with, in hexadecimal: a name that tells profiles apart.
struct NamedScd {
  ScdProfile profile;
  std::string digest;
};
StatusOr<NamedScd> LoadNamedScd(const std::string& path);

// Why SCD does not know a model, as a sentence; empty: it does.
std::string WhyNoScd(const models::ModelSpec& spec);

// Whether `found` is what the profile wants of a side, which `name` says. Errors: as CheckScdSides.
Status CheckScdSide(std::string_view name, const ScdSide& wanted, const ScdSide& found);
// Whether `profile` is of this pair. Errors: FAILED_PRECONDITION naming side, field, wanted (the profile's) and found.
Status CheckScdSides(const ScdProfile& profile, const ScdSide& producer, const ScdSide& consumer);
// What `spec` is as a side, with a tokenizer of this digest.
ScdSide ScdSideWith(const models::ModelSpec& spec, const std::string& tokenizer);
// What `spec`, with its tokenizer in `folder`, is as a side. Errors: those of reading tokenizer.json.
StatusOr<ScdSide> ScdSideOf(const models::ModelSpec& spec, const std::string& folder);

}  // namespace invar::engine
