// See noise_text.h.
#include "tools/eval/noise_text.h"

#include <fmt/format.h>

#include "tools/eval/chance.h"
#include "tools/eval/words.h"

namespace invar::eval {
namespace {

// Bytes of a sentence that is cut, at a space, where no full stop comes.
constexpr size_t kSentenceBytesMax = 240;

std::string MadeSentence(Chance chance) {
  const auto thing = [&] { return fmt::format("{} {}", chance.OneOf(Adjectives()), chance.OneOf(Nouns())); };
  // Drawn one after another: arguments of one call have no order.
  const std::string first = thing();
  const std::string second = thing();
  const std::string_view verb = chance.OneOf(Verbs());
  const std::string_view place = chance.OneOf(Places());
  switch (chance.Below(4)) {
    case 0:
      return fmt::format("The {} {} the {} {}.", first, verb, second, place);
    case 1:
      return fmt::format("Nobody knows why the {} {} every {}.", first, verb, second);
    case 2:
      return fmt::format("{}, {}, {} the {}.", chance.OneOf(Names()), place, verb, second);
    default:
      return fmt::format("There is a {} {}, and it {} the {}.", first, place, verb, second);
  }
}

bool EndsSentence(const char c) { return c == '.' || c == '!' || c == '?'; }

}  // namespace

NoiseText::NoiseText(const std::string_view text) {
  std::string sentence;
  const auto end = [&] {
    if (sentence.ends_with(' ')) sentence.pop_back();
    if (!sentence.empty()) sentences_.push_back(sentence);
    sentence.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool space = text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r';
    if (!space) {
      sentence += text[i];
    } else if (!sentence.empty() && !sentence.ends_with(' ')) {
      sentence += ' ';
      if ((sentence.size() > 1 && EndsSentence(sentence[sentence.size() - 2])) || sentence.size() > kSentenceBytesMax)
        end();
    }
  }
  end();
}

std::string NoiseText::Sentence(const uint64_t seed, const int64_t index) const {
  if (sentences_.empty()) return MadeSentence(Chance(seed, static_cast<uint64_t>(index)));
  const int64_t first = Chance(seed).Below(std::ssize(sentences_));
  return sentences_[(first + index) % std::ssize(sentences_)];
}

}  // namespace invar::eval
