// Bytes of tokens to whole UTF-8: what more bytes could still change is held back. See models/text.h.
#include "models/text.h"
#include "models/text/unicode.h"

namespace invar::models {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, const bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), strip_next_space_(tokenizer.strips_leading_space()) {}

std::string Detokenizer::Append(const TokenId id) {
  std::string bytes = pending_ + tokenizer_->TokenBytes(id, skip_special_);
  if (strip_next_space_ && !bytes.empty()) {
    strip_next_space_ = false;
    if (bytes.front() == ' ') bytes.erase(0, 1);
  }
  const size_t whole = WholeUtf8Prefix(bytes);
  pending_ = bytes.substr(whole);
  return ReplaceInvalidUtf8(std::string_view(bytes).substr(0, whole));
}

std::string Detokenizer::Finish() {
  std::string rest = ReplaceInvalidUtf8(pending_);
  pending_.clear();
  return rest;
}

}  // namespace invar::models
