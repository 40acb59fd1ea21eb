// Added tokens of a tokenizer: strings that are cut out of the text before anything else looks at it.
// Matching is leftmost, then longest, as the reference's Aho-Corasick automaton does it; the trie below gives the same
// matches, because the tokens are short and every position is tried in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "models/text/masked_text.h"

namespace invar::models {

struct AddedToken {
  TokenId id;
  std::string content;
  bool special = false;      // Dropped by decode(skip_special).
  bool normalized = false;   // Looked for after normalization.
  bool lstrip = false;       // Takes the white space on its left.
  bool rstrip = false;       // Takes the white space on its right.
  bool single_word = false;  // Only where no \w character touches it.
};

// A part of the text: a token, or text in between.
struct TextPart {
  std::optional<TokenId> id;
  size_t begin;
  size_t end;
};

// Immutable after construction. Threads: any.
class AddedTokenMatcher {
 public:
  // Adds `token`, looked for as `pattern` (its content, or its normalized content). Empty patterns never match.
  void Add(const AddedToken& token, std::string_view pattern);
  // Parts of `text` in order. A token counts only where all its bytes may be control.
  std::vector<TextPart> Split(const MaskedText& text) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Match {
    size_t end;
    const AddedToken* token;
  };
  std::optional<Match> LongestAt(const MaskedText& text, size_t begin) const;

  // Node 0 is the root. Edges by node * 256 + byte.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> token_of_node_ = {-1};
  bool starts_[256] = {};
  std::vector<AddedToken> tokens_;
};

}  // namespace invar::models
