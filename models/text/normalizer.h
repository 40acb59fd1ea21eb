// The `normalizer` section of tokenizer.json: NFC, Prepend, Replace and sequences of them; anything else is refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "models/text/masked_text.h"

namespace invar::models {

class Normalizer {
 public:
  // `section` may be null. `file` is named in messages. Errors: INVALID_ARGUMENT naming file and key.
  static StatusOr<Normalizer> Load(const nlohmann::json& section, const std::string& file);

  // Normalizes text and mask. Where composition joins characters of both kinds, the whole result counts as user text:
  // a control token is never made by normalization. Threads: any.
  void Apply(MaskedText& text) const;
  std::string Apply(std::string_view text) const;
  bool is_identity() const { return stages_.empty(); }

 private:
  struct Nfc {};
  struct Prepend {
    std::string prefix;
  };
  struct Replace {
    std::string from;
    std::string to;
  };
  using Stage = std::variant<Nfc, Prepend, Replace>;

  Status Add(const nlohmann::json& section, const std::string& file, const std::string& key);
  static void Run(const Nfc& stage, MaskedText& text);
  static void Run(const Prepend& stage, MaskedText& text);
  static void Run(const Replace& stage, MaskedText& text);

  std::vector<Stage> stages_;
};

}  // namespace invar::models
