// The `pre_tokenizer` section: cuts text into the pieces within which BPE merges.
// Patterns are recognised by their exact text and scanned by hand, in time linear in the text and without recursion
// (regex engines overflow their stacks or go quadratic on long runs); a pattern that is not known is refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace invar::models {

class PreTokenizer {
 public:
  // `section` may be null: the text is one piece. Errors: INVALID_ARGUMENT naming file and key.
  static StatusOr<PreTokenizer> Load(const nlohmann::json& section, const std::string& file);

  // Pieces of `text` in order, none empty. Their bytes are those of `text`, but for a space where add_prefix_space
  // wants one; `storage` then holds the new text. Views point into `text` or `storage`. Threads: any.
  std::vector<std::string_view> Split(std::string_view text, std::string& storage) const;
  // Whether bytes are spelt in the printable alphabet of GPT-2 (the ByteLevel stage).
  bool is_byte_level() const { return byte_level_; }

 private:
  // A pattern of the family `contractions | letters | digits | symbols | spaces`.
  struct Pattern {
    enum class Style { kGpt2, kQwen };
    Style style;
    bool marks_are_letters;  // [\p{L}\p{M}]+ where others have \p{L}+.
    int digits;              // Longest run of digits in one piece.
  };
  struct Digits {
    bool individual;
  };
  struct PrefixSpace {};
  using Stage = std::variant<Pattern, Digits, PrefixSpace>;

  Status Add(const nlohmann::json& section, const std::string& file, const std::string& key);
  Status AddSplit(const nlohmann::json& section, const std::string& file, const std::string& key);
  Status AddByteLevel(const nlohmann::json& section, const std::string& file, const std::string& key);
  static size_t PieceEnd(const Pattern& pattern, std::string_view text, size_t begin);
  static size_t PieceEnd(const Digits& digits, std::string_view text, size_t begin);

  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace invar::models
