// The SCD profiles that an instance was given (docs/SCD.md): whom it may send a prefix in codes, and whose codes it can
// make a prefix of. Loaded once and checked against the model that is served, so that a file of other models ends the
// start and not a request.
// Threads: any; nothing changes after Load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/transfer/scd_profile.h"
#include "models/model.h"

namespace invar::engine {

// One file.
struct HeldProfile {
  std::string path;
  std::string digest;  // Hex SHA-256 of its contents: what it is called between instances.
  ScdProfile profile;
  bool sends = false;  // We are its producer,
  bool takes = false;  // and its consumer; an equal pair is both.

  // Of a point by its name; points.size(): there is none.
  size_t FindPoint(std::string_view name) const;
};

// Under what KV and states are cached that were made of the codes of a point: never empty, as that of exact ones is.
std::string ProvenanceOf(const HeldProfile& held, size_t point);

// What a prefix is coded by, for one of other weights.
struct CodedExport {
  std::shared_ptr<const HeldProfile> held = {};
  size_t point = 0;
};

// The layers' parts of a prefix in codes that became certain, in order; to append to what came of that layer before.
struct CodedPart {
  size_t layer = 0;
  std::vector<std::byte> bytes;
};

// A whole prefix in codes, a payload a layer (transfer/scd_payload.h).
struct CodedPrefix {
  std::shared_ptr<const HeldProfile> held = {};  // Null: there is none.
  size_t point = 0;
  int32_t end = 0;  // Tokens.
  std::vector<std::vector<std::byte>> layers = {};
};

class ScdProfiles {
 public:
  // `paths`: files, separated by commas. `tokenizer`: digest of its file. Errors: those of LoadScd; FAILED_PRECONDITION
  // where a file is of other models, naming file, side, field, wanted and found; UNIMPLEMENTED for models that SCD does
  // not know; INVALID_ARGUMENT where two make us a consumer.
  static StatusOr<ScdProfiles> Load(std::string_view paths, const models::ModelSpec& spec,
                                    const std::string& tokenizer);

  // The one that prefixes are fetched by; null: none.
  std::shared_ptr<const HeldProfile> ToTake() const { return takes_; }
  // The one of this digest that prefixes may be sent by; null: none.
  std::shared_ptr<const HeldProfile> ToSend(std::string_view digest) const;
  // Of all that ToSend knows, for words.
  std::string DigestsToSend() const;

 private:
  std::vector<std::shared_ptr<const HeldProfile>> sends_;
  std::shared_ptr<const HeldProfile> takes_;
};

}  // namespace invar::engine
