// Noise: the sentences that needles lie between. Made from word lists, or the sentences of somebody's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace invar::eval {

class NoiseText {
 public:
  // Made sentences.
  NoiseText() = default;
  // The sentences of `text`; where it has none, made ones.
  explicit NoiseText(std::string_view text);

  // The `index`-th sentence of the noise that `seed` names, without space at its ends. Sentences of a text follow each
  // other as there, from a place that the seed draws, and begin again at its end.
  std::string Sentence(uint64_t seed, int64_t index) const;

 private:
  std::vector<std::string> sentences_;
};

}  // namespace invar::eval
