// tokenizer.json put together: added tokens are cut out first, the rest is normalized, searched again for tokens that
// are normalized, split into pieces and merged. See models/text.h.
#include <algorithm>
#include <list>
#include <utility>

#include "base/file.h"
#include "models/text.h"
#include "models/text/added_tokens.h"
#include "models/text/bpe.h"
#include "models/text/decoder.h"
#include "models/text/encode_watch.h"
#include "models/text/json_fields.h"
#include "models/text/masked_text.h"
#include "models/text/normalizer.h"
#include "models/text/post_processor.h"
#include "models/text/pretokenizer.h"
#include "models/text/strict_json.h"

namespace invar::models {
namespace {

// Published files reach 30 MB.
constexpr int64_t kMaxFileBytes = 256 << 20;

class JsonTokenizer final : public Tokenizer {
 public:
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& file);

  StatusOr<std::vector<TokenId>> Encode(std::string_view text, ControlTokens control, bool add_special,
                                        const EncodeLimits& limits) const override;
  StatusOr<std::vector<TokenId>> EncodePieces(std::span<const PromptPiece> pieces,
                                              const EncodeLimits& limits) const override;
  StatusOr<EncodedBeside> EncodeBeside(std::span<const PromptPiece> pieces, std::span<const PromptPiece> beside,
                                       const EncodeLimits& limits) const override;
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::string TokenBytes(TokenId id, bool skip_special) const override;
  int32_t vocabulary_size() const override { return static_cast<int32_t>(tokens_.size()); }
  std::optional<TokenId> FindToken(std::string_view content) const override;
  bool IsSpecial(const TokenId id) const override { return IsKnown(id) && tokens_[id.value()].special; }
  bool strips_leading_space() const override { return decoder_.strips_leading_space(); }

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };

  // A stretch of text between tokens that are cut out, on its way to the merges. What stands in it does not depend on
  // what stands beside it.
  struct Unit {
    std::optional<TokenId> id;  // A token of the normalized text, or
    std::string_view piece;     // what is merged.
    bool may_be_control = false;
    bool operator==(const Unit&) const = default;
  };
  struct Cut {
    MaskedText text;                 // Normalized.
    std::list<std::string> storage;  // Of pieces that are not in `text`.
  };

  JsonTokenizer(Normalizer normalizer, PreTokenizer pre_tokenizer, Bpe bpe, Decoder decoder, PostProcessor processor)
      : normalizer_(std::move(normalizer)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        bpe_(std::move(bpe)),
        decoder_(std::move(decoder)),
        post_processor_(std::move(processor)) {}

  bool IsKnown(const TokenId id) const { return id.value() >= 0 && id.value() < vocabulary_size(); }
  void FillTokens();
  Status AddTokens(const nlohmann::json& section, const std::string& file);
  Status AddToken(const nlohmann::json& entry, const std::string& file, const std::string& key);
  static Status CheckSize(const MaskedText& text);
  Status EncodeMasked(const MaskedText& text, std::span<const TextPart> parts, EncodeWatch& watch,
                      std::vector<TokenId>& ids) const;
  Status EncodeOrdinary(MaskedText text, EncodeWatch& watch, std::vector<TokenId>& ids) const;
  Status EncodeUnit(const Unit& unit, EncodeWatch& watch, std::vector<TokenId>& ids) const;
  StatusOr<size_t> EncodeOrdinaryBeside(MaskedText text, MaskedText beside, EncodeWatch& watch,
                                        std::vector<TokenId>& ids) const;
  // Gives `take` the units of `text` in order, as views of `cut`, until it fails.
  template <typename Take>
  Status CutOrdinary(MaskedText text, EncodeWatch& watch, Cut& cut, const Take& take) const;

  // Set at loading.
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  Decoder decoder_;
  PostProcessor post_processor_;
  AddedTokenMatcher raw_tokens_;         // Looked for in the text as it came,
  AddedTokenMatcher normalized_tokens_;  // and in the normalized text.
  std::vector<Token> tokens_;            // By id; holes have no bytes.
  std::vector<bool> is_added_;           // By id.
  StringToId added_ids_;
};

MaskedText Joined(const std::span<const PromptPiece> pieces) {
  MaskedText masked;
  for (const PromptPiece& piece : pieces) masked.Append(piece.text, piece.control);
  return masked;
}

// Bytes at their begin that both have.
size_t CommonPrefix(const std::string_view a, const std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

StatusOr<AddedToken> ParseAddedToken(const nlohmann::json& entry, const std::string& file, const std::string& key) {
  const nlohmann::json& id = Member(entry, "id");
  // An id far beyond the vocabulary would make the tables below huge.
  if (!id.is_number_integer() || id < 0 || id >= (1 << 22))
    return UnsupportedField(file, key + ".id", "a token id", id);
  StatusOr<std::string> content = StringMember(entry, "content", file, key);
  if (!content.ok()) return content.status();
  AddedToken token{.id = TokenId(id.get<int32_t>()), .content = *content};
  const std::pair<const char*, bool*> flags[] = {{"special", &token.special},
                                                 {"normalized", &token.normalized},
                                                 {"lstrip", &token.lstrip},
                                                 {"rstrip", &token.rstrip},
                                                 {"single_word", &token.single_word}};
  for (const auto& [name, flag] : flags) {
    const StatusOr<bool> value = BoolMember(entry, name, false, file, key);
    if (!value.ok()) return value.status();
    *flag = *value;
  }
  return token;
}

StatusOr<std::unique_ptr<Tokenizer>> JsonTokenizer::Load(const std::string& file) {
  const StatusOr<std::string> bytes = ReadFile(file, kMaxFileBytes);
  if (!bytes.ok()) return bytes.status();
  const StatusOr<nlohmann::json> json = ParseStrictJson(*bytes, file);
  if (!json.ok()) return json.status();
  if (!json->is_object()) return UnsupportedField(file, "tokenizer.json", "an object", nullptr);
  // `truncation` and `padding` are left-overs of training that callers of the reference switch off.
  StatusOr<Normalizer> normalizer = Normalizer::Load(Member(*json, "normalizer"), file);
  if (!normalizer.ok()) return normalizer.status();
  StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Load(Member(*json, "pre_tokenizer"), file);
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();
  StatusOr<Bpe> bpe = Bpe::Load(Member(*json, "model"), pre_tokenizer->is_byte_level(), file);
  if (!bpe.ok()) return bpe.status();
  StatusOr<Decoder> decoder = Decoder::Load(Member(*json, "decoder"), file);
  if (!decoder.ok()) return decoder.status();
  StatusOr<PostProcessor> processor = PostProcessor::Load(Member(*json, "post_processor"), file);
  if (!processor.ok()) return processor.status();
  std::unique_ptr<JsonTokenizer> tokenizer(new JsonTokenizer(
      *std::move(normalizer), *std::move(pre_tokenizer), *std::move(bpe), *std::move(decoder), *std::move(processor)));
  tokenizer->FillTokens();
  if (Status s = tokenizer->AddTokens(Member(*json, "added_tokens"), file); !s.ok()) return s;
  for (const std::vector<TokenId>* ids : {&tokenizer->post_processor_.prefix, &tokenizer->post_processor_.suffix}) {
    for (const TokenId id : *ids) {
      if (!tokenizer->IsKnown(id)) return UnsupportedField(file, "post_processor", "ids of the vocabulary", id.value());
    }
  }
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

void JsonTokenizer::FillTokens() {
  for (const auto& [spelling, id] : bpe_.vocabulary()) {
    if (id >= vocabulary_size()) tokens_.resize(id + 1);
    tokens_[id].bytes = decoder_.TokenBytes(spelling);
  }
}

Status JsonTokenizer::AddTokens(const nlohmann::json& section, const std::string& file) {
  is_added_.resize(tokens_.size());
  if (section.is_null()) return OkStatus();
  if (!section.is_array()) return UnsupportedField(file, "added_tokens", "an array", section);
  for (size_t i = 0; i < section.size(); ++i) {
    if (Status s = AddToken(section[i], file, "added_tokens[" + std::to_string(i) + "]"); !s.ok()) return s;
  }
  return OkStatus();
}

Status JsonTokenizer::AddToken(const nlohmann::json& entry, const std::string& file, const std::string& key) {
  const StatusOr<AddedToken> token = ParseAddedToken(entry, file, key);
  if (!token.ok()) return token.status();
  if (token->content.empty()) return OkStatus();  // As the reference does.
  const int32_t id = token->id.value();
  const auto entry_of_model = bpe_.vocabulary().find(token->content);
  if (entry_of_model != bpe_.vocabulary().end() && entry_of_model->second != id) {
    return UnsupportedField(file, key + ".id", "the id that model.vocab gives this token", entry);
  }
  if (!added_ids_.emplace(token->content, id).second) return UnsupportedField(file, key, "each token once", entry);
  if (id >= vocabulary_size()) {
    tokens_.resize(id + 1);
    is_added_.resize(id + 1);
  }
  const bool taken = is_added_[id] || (entry_of_model == bpe_.vocabulary().end() && !tokens_[id].bytes.empty());
  if (taken) return UnsupportedField(file, key + ".id", "an id that no other token has", entry);
  is_added_[id] = true;
  // A normalized token is looked for, and decodes, as its normalized content.
  const std::string pattern = token->normalized ? normalizer_.Apply(token->content) : token->content;
  (token->normalized ? normalized_tokens_ : raw_tokens_).Add(*token, pattern);
  tokens_[id] = {decoder_.TokenBytes(pattern), token->special};
  return OkStatus();
}

Status JsonTokenizer::CheckSize(const MaskedText& text) {
  if (text.text.size() <= kTextBytesMax) return OkStatus();
  return ResourceExhausted("text of " + std::to_string(text.text.size()) + " bytes, at most " +
                               std::to_string(kTextBytesMax) + " are tokenized",
                           "text");
}

template <typename Take>
Status JsonTokenizer::CutOrdinary(MaskedText text, EncodeWatch& watch, Cut& cut, const Take& take) const {
  cut.text = std::move(text);
  normalizer_.Apply(cut.text);
  if (Status s = watch.Spend(cut.text.text.size()); !s.ok()) return s;
  for (const TextPart& part : normalized_tokens_.Split(cut.text)) {
    if (part.id) {
      if (Status s = take(Unit{.id = part.id, .piece = {}}); !s.ok()) return s;
      continue;
    }
    const std::string_view rest = std::string_view(cut.text.text).substr(part.begin, part.end - part.begin);
    const bool may_be_control = cut.text.MayBeControl(part.begin, part.end);
    const std::vector<std::string_view> pieces = pre_tokenizer_.Split(rest, cut.storage.emplace_back());
    if (Status s = watch.Spend(rest.size()); !s.ok()) return s;
    for (const std::string_view piece : pieces) {
      if (Status s = take(Unit{.id = {}, .piece = piece, .may_be_control = may_be_control}); !s.ok()) return s;
    }
  }
  return OkStatus();
}

Status JsonTokenizer::EncodeUnit(const Unit& unit, EncodeWatch& watch, std::vector<TokenId>& ids) const {
  static const std::vector<bool> kNone;
  if (unit.id) {
    ids.push_back(*unit.id);
  } else if (Status s = bpe_.Encode(unit.piece, unit.may_be_control ? kNone : is_added_, watch, ids); !s.ok()) {
    return s;
  }
  return watch.CheckTokens(ids.size());
}

Status JsonTokenizer::EncodeOrdinary(MaskedText text, EncodeWatch& watch, std::vector<TokenId>& ids) const {
  Cut cut;
  return CutOrdinary(std::move(text), watch, cut, [&](const Unit& unit) { return EncodeUnit(unit, watch, ids); });
}

Status JsonTokenizer::EncodeMasked(const MaskedText& text, const std::span<const TextPart> parts, EncodeWatch& watch,
                                   std::vector<TokenId>& ids) const {
  for (const TextPart& part : parts) {
    if (part.id) {
      ids.push_back(*part.id);
      if (Status s = watch.CheckTokens(ids.size()); !s.ok()) return s;
    } else if (Status s = EncodeOrdinary(text.Slice(part.begin, part.end), watch, ids); !s.ok()) {
      return s;
    }
  }
  return OkStatus();
}

StatusOr<std::vector<TokenId>> JsonTokenizer::Encode(const std::string_view text, const ControlTokens control,
                                                     const bool add_special, const EncodeLimits& limits) const {
  MaskedText masked;
  masked.Append(text, control);
  if (Status s = CheckSize(masked); !s.ok()) return s;
  EncodeWatch watch(limits);
  std::vector<TokenId> ids;
  if (add_special) ids = post_processor_.prefix;
  if (Status s = EncodeMasked(masked, raw_tokens_.Split(masked), watch, ids); !s.ok()) return s;
  if (add_special) ids.insert(ids.end(), post_processor_.suffix.begin(), post_processor_.suffix.end());
  if (Status s = watch.CheckTokens(ids.size()); !s.ok()) return s;
  return ids;
}

StatusOr<std::vector<TokenId>> JsonTokenizer::EncodePieces(const std::span<const PromptPiece> pieces,
                                                           const EncodeLimits& limits) const {
  const MaskedText masked = Joined(pieces);
  if (Status s = CheckSize(masked); !s.ok()) return s;
  EncodeWatch watch(limits);
  std::vector<TokenId> ids;
  if (Status s = EncodeMasked(masked, raw_tokens_.Split(masked), watch, ids); !s.ok()) return s;
  return ids;
}

// Parts that are equal have equal ids; the first two that are not are compared piece by piece.
StatusOr<EncodedBeside> JsonTokenizer::EncodeBeside(const std::span<const PromptPiece> pieces,
                                                    const std::span<const PromptPiece> beside,
                                                    const EncodeLimits& limits) const {
  const MaskedText text = Joined(pieces), other = Joined(beside);
  for (const MaskedText* each : {&text, &other}) {
    if (Status s = CheckSize(*each); !s.ok()) return s;
  }
  EncodeWatch watch(limits);
  const std::vector<TextPart> parts = raw_tokens_.Split(text), other_parts = raw_tokens_.Split(other);
  if (Status s = watch.Spend(text.text.size() + other.text.size()); !s.ok()) return s;
  const auto common = std::min(CommonPrefix(text.text, other.text), CommonPrefix(text.mask, other.mask));
  size_t equal = 0;
  while (equal < std::min(parts.size(), other_parts.size()) && parts[equal].end <= common &&
         parts[equal].id == other_parts[equal].id && parts[equal].end == other_parts[equal].end) {
    ++equal;
  }
  EncodedBeside out;
  const std::span<const TextPart> all(parts);
  if (Status s = EncodeMasked(text, all.first(equal), watch, out.ids); !s.ok()) return s;
  out.shared = out.ids.size();
  if (equal < std::min(parts.size(), other_parts.size()) && !parts[equal].id && !other_parts[equal].id) {
    const StatusOr<size_t> shared =
        EncodeOrdinaryBeside(text.Slice(parts[equal].begin, parts[equal].end),
                             other.Slice(other_parts[equal].begin, other_parts[equal].end), watch, out.ids);
    if (!shared.ok()) return shared.status();
    out.shared = *shared;
    ++equal;
  }
  if (Status s = EncodeMasked(text, all.subspan(equal), watch, out.ids); !s.ok()) return s;
  return out;
}

// Appends the ids of `text`. Gives how many of all ids those of `beside` have too.
StatusOr<size_t> JsonTokenizer::EncodeOrdinaryBeside(MaskedText text, MaskedText beside, EncodeWatch& watch,
                                                     std::vector<TokenId>& ids) const {
  Cut cut, other_cut;
  std::vector<Unit> units, others;
  const auto into = [](std::vector<Unit>& all) {
    return [&all](const Unit& unit) {
      all.push_back(unit);
      return OkStatus();
    };
  };
  if (Status s = CutOrdinary(std::move(text), watch, cut, into(units)); !s.ok()) return s;
  if (Status s = CutOrdinary(std::move(beside), watch, other_cut, into(others)); !s.ok()) return s;
  const auto differ = std::ranges::mismatch(units, others).in1;
  for (auto unit = units.begin(); unit != differ; ++unit) {
    if (Status s = EncodeUnit(*unit, watch, ids); !s.ok()) return s;
  }
  const size_t shared = ids.size();
  for (auto unit = differ; unit != units.end(); ++unit) {
    if (Status s = EncodeUnit(*unit, watch, ids); !s.ok()) return s;
  }
  const auto equal = static_cast<size_t>(differ - units.begin());
  if (equal == units.size() || equal == others.size()) return shared;
  std::vector<TokenId> other_ids;
  if (Status s = EncodeUnit(others[equal], watch, other_ids); !s.ok()) return s;
  const std::span<const TokenId> rest = std::span(ids).subspan(shared);
  return shared + static_cast<size_t>(std::ranges::mismatch(rest, other_ids).in1 - rest.begin());
}

std::string JsonTokenizer::Decode(const std::span<const TokenId> ids, const bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Finish();
}

std::string JsonTokenizer::TokenBytes(const TokenId id, const bool skip_special) const {
  if (!IsKnown(id) || (skip_special && tokens_[id.value()].special)) return {};
  return tokens_[id.value()].bytes;
}

std::optional<TokenId> JsonTokenizer::FindToken(const std::string_view content) const {
  for (const StringToId* ids : std::initializer_list<const StringToId*>{&added_ids_, &bpe_.vocabulary()}) {
    if (const auto it = ids->find(content); it != ids->end()) return TokenId(it->second);
  }
  return std::nullopt;
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& folder) {
  return JsonTokenizer::Load(folder + "/tokenizer.json");
}

}  // namespace invar::models
