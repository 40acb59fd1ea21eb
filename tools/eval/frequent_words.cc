// fwe: made-up words with the frequencies of Zipf's law, exponent 2; the three most frequent are asked for.
#include <algorithm>

#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"
#include "tools/eval/scorers.h"

namespace invar::eval {

Task FrequentWords(const Composition& composition) {
  constexpr int64_t kAsked = 3;
  // The i-th word stands times / i^2 times, and those of the tail once each.
  const int64_t times = 10 + 4 * int64_t{composition.units};
  Chance chance(composition.seed);
  std::vector<std::string> asked;
  std::vector<std::string> all;
  for (int64_t i = 1; i * i <= 2 * times; ++i) {
    const std::string word = chance.Letters(6, 'a');
    if (i <= kAsked) asked.push_back(word);
    all.insert(all.end(), std::max<int64_t>(1, times / (i * i)), word);
  }
  chance.Shuffle(all);
  std::string context = "Coded text:";
  for (const std::string& word : all) context += " " + word;
  return {.context = context + "\n",
          .question = "Which three words stand most often in the coded text?",
          .lead = "The three words that stand most often are",
          .gold = " " + Listed(asked) + ".",
          .expected = asked,
          .score = ShareFound};
}

}  // namespace invar::eval
