// The `post_processor` section: which ids stand before and after a text that is encoded with special tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace invar::models {

struct PostProcessor {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;

  // Knows ByteLevel (which moves offsets only), TemplateProcessing and Sequence; null is empty.
  // Errors: INVALID_ARGUMENT naming file and key.
  static StatusOr<PostProcessor> Load(const nlohmann::json& section, const std::string& file);

 private:
  Status Add(const nlohmann::json& section, const std::string& file, const std::string& key);
  Status AddTemplate(const nlohmann::json& section, const std::string& file, const std::string& key);
};

}  // namespace invar::models
