// See verify_protocol.h.
#include "engine/verify_protocol.h"

#include <bit>
#include <span>

#include "base/crc32c.h"

namespace invar::engine {

uint32_t ChecksumOf(const VerifiedFrame& frame) {
  std::vector<int64_t> words = {frame.first, std::ssize(frame.tokens)};
  const auto add_bits = [&](const float number) { words.push_back(std::bit_cast<uint32_t>(number)); };
  for (const TokenId token : frame.tokens) words.push_back(token.value());
  words.push_back(std::ssize(frame.logprobs));
  for (const TokenLogprob& logprob : frame.logprobs) {
    words.push_back(logprob.token.value());
    add_bits(logprob.logit);
    add_bits(logprob.logprob);
    words.push_back(std::ssize(logprob.top));
    for (const TokenAlternative& other : logprob.top) {
      words.push_back(other.token.value());
      add_bits(other.logprob);
    }
  }
  return Crc32c(std::as_bytes(std::span(words)));
}

}  // namespace invar::engine
