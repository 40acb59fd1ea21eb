// The byte table of sim_tokenizer.h. Nothing encodes: simulated requests bring ids.
#include "tools/sim/sim_tokenizer.h"

#include <array>

namespace invar::sim {
namespace {

constexpr std::array<std::string_view, 24> kBytes = {"<end>",
                                                     "a",
                                                     "b",
                                                     "c",
                                                     "ab",
                                                     "bc",
                                                     "ca",
                                                     "abc",
                                                     " ",
                                                     "\n",
                                                     "\xC3",
                                                     "\xA9",
                                                     "\xE2\x82",
                                                     "\xAC",
                                                     "\xF0\x9F",
                                                     "\x99\x82",
                                                     "\xF0",
                                                     "\x9F\x99",
                                                     "\x82",
                                                     "\xFF",
                                                     "a\xC3",
                                                     "\xA9"
                                                     "b",
                                                     "",
                                                     "stop"};

}  // namespace

SimTokenizer::SimTokenizer(const int32_t vocabulary_size) : vocabulary_size_(vocabulary_size) {}

StatusOr<std::vector<TokenId>> SimTokenizer::Encode(std::string_view, models::ControlTokens, bool,
                                                    const models::EncodeLimits&) const {
  return Unimplemented("simulated requests are token ids");
}

StatusOr<std::vector<TokenId>> SimTokenizer::EncodePieces(std::span<const models::PromptPiece>,
                                                          const models::EncodeLimits&) const {
  return Unimplemented("simulated requests are token ids");
}

StatusOr<models::EncodedBeside> SimTokenizer::EncodeBeside(std::span<const models::PromptPiece>,
                                                           std::span<const models::PromptPiece>,
                                                           const models::EncodeLimits&) const {
  return Unimplemented("simulated requests are token ids");
}

std::string SimTokenizer::Decode(const std::span<const TokenId> ids, const bool skip_special) const {
  models::Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Finish();
}

std::string SimTokenizer::TokenBytes(const TokenId id, const bool skip_special) const {
  if (id.value() < 0 || id.value() >= vocabulary_size_) return {};
  if (skip_special && IsSpecial(id)) return {};
  return std::string(kBytes[id.value() % kBytes.size()]);
}

std::optional<TokenId> SimTokenizer::FindToken(const std::string_view content) const {
  for (size_t id = 0; id < kBytes.size(); ++id) {
    if (kBytes[id] == content) return TokenId(static_cast<int32_t>(id));
  }
  return std::nullopt;
}

}  // namespace invar::sim
