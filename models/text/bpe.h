// Byte-pair encoding of one piece by merge rank, as the reference library does it, in O(n log n): a heap of candidate
// merges over a linked list of symbols, so that a megabyte without a split point costs a fraction of a second.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "models/text/encode_watch.h"

namespace invar::models {

// Strings looked up by views.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using StringToId = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

// Immutable after loading. Threads: any.
class Bpe {
 public:
  // `section` is `model` of tokenizer.json. With `byte_level`, vocabulary entries are spelt in GPT-2's alphabet and a
  // symbol starts as one byte, otherwise as one character. Errors: INVALID_ARGUMENT naming file and key.
  static StatusOr<Bpe> Load(const nlohmann::json& section, bool byte_level, const std::string& file);

  // Appends the ids of `piece`. Where the file says ignore_merges, a piece that is an entry is taken whole, unless
  // `never_whole` has its id set: control tokens, when the text is a user's. `watch` is asked as the work goes on.
  // Errors: those of `watch`.
  Status Encode(std::string_view piece, const std::vector<bool>& never_whole, EncodeWatch& watch,
                std::vector<TokenId>& out) const;

  // Entries as spelt in the file.
  const StringToId& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    int32_t rank;
    int32_t result;
  };
  // A symbol of the piece in a doubly linked list; `id` < 0 once it was merged into its left neighbour.
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
  };

  Status LoadVocabulary(const nlohmann::json& section, const std::string& file);
  Status LoadMerges(const nlohmann::json& section, const std::string& file);
  Status LoadOptions(const nlohmann::json& section, const std::string& file);
  Status InitialSymbols(std::string_view piece, EncodeWatch& watch, std::vector<int32_t>& ids) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;
  Status MergeSymbols(EncodeWatch& watch, std::vector<int32_t>& ids) const;

  bool byte_level_ = false;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  int32_t unknown_ = -1;
  int32_t byte_symbols_[256];   // byte_level_: the entry of each byte, or -1.
  int32_t byte_fallback_[256];  // Entries <0x00> to <0xFF>, or -1.
  StringToId vocabulary_;
  StringToId whole_pieces_;                     // ignore_merges_: entries as the text they stand for.
  std::unordered_map<uint64_t, Merge> merges_;  // By left << 32 | right.
};

}  // namespace invar::models
