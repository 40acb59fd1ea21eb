// tokenizer.json put together: added tokens are cut out first, the rest is normalized, searched again for tokens that
// are normalized, split into pieces and merged. See models/text.h.
#include <algorithm>
#include <utility>

#include "base/file.h"
#include "models/text.h"
#include "models/text/added_tokens.h"
#include "models/text/bpe.h"
#include "models/text/decoder.h"
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

  StatusOr<std::vector<TokenId>> Encode(std::string_view text, ControlTokens control, bool add_special) const override;
  StatusOr<std::vector<TokenId>> EncodePieces(std::span<const PromptPiece> pieces) const override;
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
  Status EncodeMasked(const MaskedText& text, std::vector<TokenId>& ids) const;
  Status EncodeOrdinary(MaskedText text, std::vector<TokenId>& ids) const;

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

Status JsonTokenizer::EncodeOrdinary(MaskedText text, std::vector<TokenId>& ids) const {
  normalizer_.Apply(text);
  std::string storage;
  static const std::vector<bool> kNone;
  for (const TextPart& part : normalized_tokens_.Split(text)) {
    if (part.id) {
      ids.push_back(*part.id);
      continue;
    }
    const std::string_view rest = std::string_view(text.text).substr(part.begin, part.end - part.begin);
    const std::vector<bool>& never_whole = text.MayBeControl(part.begin, part.end) ? kNone : is_added_;
    for (const std::string_view piece : pre_tokenizer_.Split(rest, storage)) {
      if (Status s = bpe_.Encode(piece, never_whole, ids); !s.ok()) return s;
    }
  }
  return OkStatus();
}

Status JsonTokenizer::EncodeMasked(const MaskedText& text, std::vector<TokenId>& ids) const {
  if (text.text.size() > kTextBytesMax) {
    return ResourceExhausted("text of " + std::to_string(text.text.size()) + " bytes, at most " +
                                 std::to_string(kTextBytesMax) + " are tokenized",
                             "text");
  }
  for (const TextPart& part : raw_tokens_.Split(text)) {
    if (part.id) {
      ids.push_back(*part.id);
    } else if (Status s = EncodeOrdinary(text.Slice(part.begin, part.end), ids); !s.ok()) {
      return s;
    }
  }
  return OkStatus();
}

StatusOr<std::vector<TokenId>> JsonTokenizer::Encode(const std::string_view text, const ControlTokens control,
                                                     const bool add_special) const {
  MaskedText masked;
  masked.Append(text, control);
  std::vector<TokenId> ids;
  if (add_special) ids = post_processor_.prefix;
  if (Status s = EncodeMasked(masked, ids); !s.ok()) return s;
  if (add_special) ids.insert(ids.end(), post_processor_.suffix.begin(), post_processor_.suffix.end());
  return ids;
}

StatusOr<std::vector<TokenId>> JsonTokenizer::EncodePieces(const std::span<const PromptPiece> pieces) const {
  MaskedText masked;
  for (const PromptPiece& piece : pieces) masked.Append(piece.text, piece.control);
  std::vector<TokenId> ids;
  if (Status s = EncodeMasked(masked, ids); !s.ok()) return s;
  return ids;
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

StatusOr<std::vector<TokenId>> EncodePieces(const Tokenizer& tokenizer, const std::span<const PromptPiece> pieces) {
  return tokenizer.EncodePieces(pieces);
}

}  // namespace invar::models
