// See added_tokens.h.
#include "models/text/added_tokens.h"

#include <algorithm>

#include "models/text/unicode.h"

namespace invar::models {
namespace {

// Start of the last character of `text`. Requires: not empty.
size_t LastCharStart(const std::string_view text) {
  for (size_t back = std::min<size_t>(4, text.size()); back > 1; --back) {
    if (DecodeUtf8(text, text.size() - back).bytes == static_cast<int32_t>(back)) return text.size() - back;
  }
  return text.size() - 1;
}

bool EndsWithWord(const std::string_view text) {
  return !text.empty() && IsWord(DecodeUtf8(text, LastCharStart(text)).code_point);
}

bool StartsWithWord(const std::string_view text) { return !text.empty() && IsWord(DecodeUtf8(text, 0).code_point); }

size_t TrailingSpaceStart(std::string_view text) {
  while (!text.empty()) {
    const size_t start = LastCharStart(text);
    if (!IsWhiteSpace(DecodeUtf8(text, start).code_point)) break;
    text = text.substr(0, start);
  }
  return text.size();
}

size_t LeadingSpaceEnd(const std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (!IsWhiteSpace(c.code_point)) break;
    i += c.bytes;
  }
  return i;
}

}  // namespace

void AddedTokenMatcher::Add(const AddedToken& token, const std::string_view pattern) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char c : pattern) {
    const uint64_t key = uint64_t{node} * 256 + static_cast<unsigned char>(c);
    const auto [it, inserted] = edges_.try_emplace(key, static_cast<uint32_t>(token_of_node_.size()));
    if (inserted) token_of_node_.push_back(-1);
    node = it->second;
  }
  starts_[static_cast<unsigned char>(pattern.front())] = true;
  token_of_node_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::LongestAt(const MaskedText& text, const size_t begin) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t i = begin; i < text.text.size() && text.mask[i] == MaskedText::kParseByte; ++i) {
    const auto it = edges_.find(uint64_t{node} * 256 + static_cast<unsigned char>(text.text[i]));
    if (it == edges_.end()) break;
    node = it->second;
    if (token_of_node_[node] >= 0) longest = Match{i + 1, &tokens_[token_of_node_[node]]};
  }
  return longest;
}

std::vector<TextPart> AddedTokenMatcher::Split(const MaskedText& text) const {
  const std::string_view all = text.text;
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t i = 0; i < all.size();) {
    if (!starts_[static_cast<unsigned char>(all[i])]) {
      ++i;
      continue;
    }
    const std::optional<Match> match = LongestAt(text, i);
    if (!match) {
      ++i;
      continue;
    }
    size_t begin = i, end = match->end;
    i = match->end;
    const AddedToken& token = *match->token;
    if (token.single_word && (EndsWithWord(all.substr(0, begin)) || StartsWithWord(all.substr(end)))) continue;
    // Spaces that the token before has taken stay with it.
    if (token.lstrip) begin = std::max(TrailingSpaceStart(all.substr(0, begin)), done);
    if (token.rstrip) end += LeadingSpaceEnd(all.substr(end));
    if (done < begin) parts.push_back({std::nullopt, done, begin});
    parts.push_back({token.id, begin, end});
    done = end;
  }
  if (done < all.size()) parts.push_back({std::nullopt, done, all.size()});
  return parts;
}

}  // namespace invar::models
