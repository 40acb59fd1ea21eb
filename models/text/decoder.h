// The `decoder` section: what bytes a token stands for. ByteLevel (GPT-2's alphabet), or the SentencePiece chain of
// Replace, ByteFallback, Fuse and Strip.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace invar::models {

class Decoder {
 public:
  // Errors: INVALID_ARGUMENT naming file and key.
  static StatusOr<Decoder> Load(const nlohmann::json& section, const std::string& file);

  // Bytes of one token as spelt in the vocabulary. Threads: any.
  std::string TokenBytes(std::string_view spelling) const;
  // Whether one leading space of the whole text is dropped.
  bool strips_leading_space() const { return strips_leading_space_; }

 private:
  Status AddStage(const nlohmann::json& section, const std::string& file, const std::string& key);

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;
  bool strips_leading_space_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;  // In order: from, to.
};

}  // namespace invar::models
