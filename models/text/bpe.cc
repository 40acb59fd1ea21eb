// See bpe.h. Where several merges have the same rank the leftmost goes first; a candidate is stale when its two symbols
// no longer merge into the symbol it names.
#include "models/text/bpe.h"

#include <algorithm>
#include <optional>
#include <queue>

#include "models/text/byte_alphabet.h"
#include "models/text/json_fields.h"
#include "models/text/unicode.h"

namespace invar::models {
namespace {

// Well above the largest published vocabulary (about 256 thousand).
constexpr int64_t kMaxVocabulary = 1 << 22;

std::string FallbackName(const int byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">";
}

// "a b" (old files) or ["a", "b"].
std::optional<std::pair<std::string_view, std::string_view>> SplitMerge(const nlohmann::json& entry) {
  if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
    return std::make_pair<std::string_view, std::string_view>(entry[0].get_ref<const std::string&>(),
                                                              entry[1].get_ref<const std::string&>());
  }
  if (!entry.is_string()) return std::nullopt;
  const std::string_view text = entry.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return std::nullopt;
  return std::make_pair(text.substr(0, space), text.substr(space + 1));
}

struct Candidate {
  int32_t rank;
  int32_t position;
  int32_t result;
  bool operator<(const Candidate& other) const {  // std::priority_queue puts the greatest first.
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

StatusOr<Bpe> Bpe::Load(const nlohmann::json& section, const bool byte_level, const std::string& file) {
  Bpe bpe;
  bpe.byte_level_ = byte_level;
  // Older files leave the type out.
  if (const std::string type = TypeOf(section); !section.is_object() || (section.contains("type") && type != "BPE")) {
    return UnsupportedField(file, "model.type", "BPE", Member(section, "type"));
  }
  if (Status s = bpe.LoadVocabulary(section, file); !s.ok()) return s;
  if (Status s = bpe.LoadOptions(section, file); !s.ok()) return s;
  if (Status s = bpe.LoadMerges(section, file); !s.ok()) return s;
  return bpe;
}

Status Bpe::LoadVocabulary(const nlohmann::json& section, const std::string& file) {
  const nlohmann::json& vocabulary = Member(section, "vocab");
  if (!vocabulary.is_object() || vocabulary.empty()) {
    return UnsupportedField(file, "model.vocab", "an object of token: id",
                            vocabulary.is_object() ? vocabulary : nullptr);
  }
  std::vector<const std::string*> names;  // By id.
  vocabulary_.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.get_ref<const nlohmann::json::object_t&>()) {
    if (!id.is_number_integer() || id < 0 || id >= kMaxVocabulary) {
      return UnsupportedField(file, "model.vocab[\"" + token + "\"]",
                              "an id from 0 to " + std::to_string(kMaxVocabulary - 1), id);
    }
    const int32_t value = id.get<int32_t>();
    if (value >= static_cast<int32_t>(names.size())) names.resize(value + 1, nullptr);
    if (names[value] != nullptr) {
      return InvalidArgument(
          file + ": model.vocab: \"" + *names[value] + "\" and \"" + token + "\" share id " + std::to_string(value),
          "model.vocab");
    }
    names[value] = &token;
    vocabulary_.emplace(token, value);
  }
  std::fill(std::begin(byte_symbols_), std::end(byte_symbols_), -1);
  std::fill(std::begin(byte_fallback_), std::end(byte_fallback_), -1);
  for (int byte = 0; byte < 256 && byte_level_; ++byte) {
    std::string spelling;
    AppendUtf8(ByteToAlphabet(static_cast<unsigned char>(byte)), spelling);
    if (const auto it = vocabulary_.find(spelling); it != vocabulary_.end()) byte_symbols_[byte] = it->second;
  }
  return OkStatus();
}

Status Bpe::LoadOptions(const nlohmann::json& section, const std::string& file) {
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const nlohmann::json& value = Member(section, name);
    const bool without_effect = value.is_null() || value == 0.0 || value == "";
    if (!without_effect) return UnsupportedField(file, std::string("model.") + name, "null", value);
  }
  const StatusOr<bool> fallback = BoolMember(section, "byte_fallback", false, file, "model");
  if (!fallback.ok()) return fallback.status();
  const StatusOr<bool> fuse = BoolMember(section, "fuse_unk", false, file, "model");
  if (!fuse.ok()) return fuse.status();
  const StatusOr<bool> ignore = BoolMember(section, "ignore_merges", false, file, "model");
  if (!ignore.ok()) return ignore.status();
  fuse_unknown_ = *fuse;
  ignore_merges_ = *ignore;
  if (const nlohmann::json& unknown = Member(section, "unk_token"); !unknown.is_null()) {
    const auto it = unknown.is_string() ? vocabulary_.find(unknown.get_ref<const std::string&>()) : vocabulary_.end();
    if (it == vocabulary_.end()) return UnsupportedField(file, "model.unk_token", "an entry of model.vocab", unknown);
    unknown_ = it->second;
  }
  for (int byte = 0; byte < 256 && *fallback; ++byte) {
    if (const auto it = vocabulary_.find(FallbackName(byte)); it != vocabulary_.end())
      byte_fallback_[byte] = it->second;
  }
  for (const auto& [token, id] : vocabulary_) {
    if (!ignore_merges_) break;
    std::optional<std::string> text = byte_level_ ? AlphabetToBytes(token) : token;
    if (text) whole_pieces_.emplace(*std::move(text), id);
  }
  return OkStatus();
}

Status Bpe::LoadMerges(const nlohmann::json& section, const std::string& file) {
  const nlohmann::json& merges = Member(section, "merges");
  if (!merges.is_array()) return UnsupportedField(file, "model.merges", "an array", merges);
  merges_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto key = [rank] { return "model.merges[" + std::to_string(rank) + "]"; };
    const auto pair = SplitMerge(merges[rank]);
    if (!pair) return UnsupportedField(file, key(), "\"a b\" or [\"a\", \"b\"]", merges[rank]);
    const auto left = vocabulary_.find(pair->first), right = vocabulary_.find(pair->second);
    joined.assign(pair->first).append(pair->second);
    const auto result = vocabulary_.find(joined);
    if (left == vocabulary_.end() || right == vocabulary_.end() || result == vocabulary_.end()) {
      return UnsupportedField(file, key(), "two entries of model.vocab whose concatenation is one too", merges[rank]);
    }
    merges_.insert_or_assign(static_cast<uint64_t>(left->second) << 32 | static_cast<uint32_t>(right->second),
                             Merge{static_cast<int32_t>(rank), result->second});
  }
  return OkStatus();
}

// The entry of each byte or character, before any merge. Unknown characters become the unknown token, neighbours fused
// where the file says so; one pending unknown is emitted only when a known character or the end follows. Where there is
// no unknown token they leave nothing, as with the reference library: SmolLM2 lacks the bytes its texts never held.
Status Bpe::InitialSymbols(const std::string_view piece, EncodeWatch& watch, std::vector<int32_t>& ids) const {
  int32_t pending_unknowns = 0;
  const auto flush = [&] {
    if (pending_unknowns > 0) ids.push_back(unknown_);
    pending_unknowns = 0;
  };
  for (size_t i = 0; i < piece.size();) {
    const size_t bytes = byte_level_ ? 1 : DecodeUtf8(piece, i).bytes;
    const std::string_view text = piece.substr(i, bytes);
    i += bytes;
    if (Status s = watch.Spend(bytes); !s.ok()) return s;
    int32_t id = byte_level_ ? byte_symbols_[static_cast<unsigned char>(text[0])] : -1;
    if (!byte_level_) {
      if (const auto it = vocabulary_.find(text); it != vocabulary_.end()) id = it->second;
    }
    if (id >= 0) {
      flush();
      ids.push_back(id);
      continue;
    }
    const auto fallback = [this](char c) { return byte_fallback_[static_cast<unsigned char>(c)]; };
    if (std::all_of(text.begin(), text.end(), [&](char c) { return fallback(c) >= 0; })) {
      for (const char c : text) ids.push_back(fallback(c));
      continue;
    }
    if (unknown_ < 0) continue;
    if (!fuse_unknown_) flush();
    ++pending_unknowns;
  }
  flush();
  return OkStatus();
}

const Bpe::Merge* Bpe::FindMerge(const int32_t left, const int32_t right) const {
  const auto it = merges_.find(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right));
  return it == merges_.end() ? nullptr : &it->second;
}

Status Bpe::MergeSymbols(EncodeWatch& watch, std::vector<int32_t>& ids) const {
  const int32_t count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(count);
  std::vector<Candidate> first;
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {ids[i], i - 1, i + 1 < count ? i + 1 : -1};
    if (i + 1 == count) break;
    if (Status s = watch.Spend(1); !s.ok()) return s;
    if (const Merge* m = FindMerge(ids[i], ids[i + 1])) first.push_back({m->rank, i, m->result});
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    if (Status s = watch.Spend(1); !s.ok()) return s;
    Symbol& left = symbols[top.position];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->result != top.result) continue;
    left.id = top.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = top.position;
    if (left.previous >= 0) {
      const Merge* m = FindMerge(symbols[left.previous].id, left.id);
      if (m != nullptr) queue.push({m->rank, left.previous, m->result});
    }
    if (left.next >= 0) {
      const Merge* m = FindMerge(left.id, symbols[left.next].id);
      if (m != nullptr) queue.push({m->rank, top.position, m->result});
    }
  }
  ids.clear();
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) ids.push_back(symbols[i].id);
  return OkStatus();
}

Status Bpe::Encode(const std::string_view piece, const std::vector<bool>& never_whole, EncodeWatch& watch,
                   std::vector<TokenId>& out) const {
  if (ignore_merges_) {
    const auto it = whole_pieces_.find(piece);
    if (it != whole_pieces_.end() &&
        !(it->second < static_cast<int32_t>(never_whole.size()) && never_whole[it->second])) {
      out.emplace_back(it->second);
      return watch.Spend(piece.size());
    }
  }
  std::vector<int32_t> ids;
  if (Status s = InitialSymbols(piece, watch, ids); !s.ok()) return s;
  if (ids.size() > 1) {
    if (Status s = MergeSymbols(watch, ids); !s.ok()) return s;
  }
  for (const int32_t id : ids) out.emplace_back(id);
  return OkStatus();
}

}  // namespace invar::models
