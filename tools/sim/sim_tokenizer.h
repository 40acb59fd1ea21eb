// A tokenizer small enough to read: ids stand for fixed bytes, chosen to hurt. Letters that spell stop strings in many
// ways, the bytes of 2-, 3- and 4-byte characters apart, bytes that are never valid, and one special.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/text.h"

namespace invar::sim {

class SimTokenizer final : public models::Tokenizer {
 public:
  // `vocabulary_size` may be below the model's: the rest are padding rows.
  explicit SimTokenizer(int32_t vocabulary_size);

  StatusOr<std::vector<TokenId>> Encode(std::string_view text, models::ControlTokens control, bool add_special,
                                        const models::EncodeLimits& limits) const override;
  StatusOr<std::vector<TokenId>> EncodePieces(std::span<const models::PromptPiece> pieces,
                                              const models::EncodeLimits& limits) const override;
  StatusOr<models::EncodedBeside> EncodeBeside(std::span<const models::PromptPiece> pieces,
                                               std::span<const models::PromptPiece> beside,
                                               const models::EncodeLimits& limits) const override;
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::string TokenBytes(TokenId id, bool skip_special) const override;
  int32_t vocabulary_size() const override { return vocabulary_size_; }
  std::optional<TokenId> FindToken(std::string_view content) const override;
  bool IsSpecial(const TokenId id) const override { return id.value() == 0; }
  bool strips_leading_space() const override { return false; }

 private:
  const int32_t vocabulary_size_;
};

}  // namespace invar::sim
