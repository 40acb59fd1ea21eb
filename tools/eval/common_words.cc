// cwe: ten words stand far more often than the others, which stand three times each. A unit is one more of the others;
// the common ones grow with them up to the thirty times of RULER, so that short contexts have both.
#include <algorithm>

#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"
#include "tools/eval/scorers.h"
#include "tools/eval/words.h"

namespace invar::eval {

Task CommonWords(const Composition& composition) {
  constexpr int64_t kCommon = 10;
  constexpr int64_t kOthersTimes = 3;
  const int64_t common_times = std::min<int64_t>(4 + composition.units / 2, 30);
  Chance chance(composition.seed);
  std::vector<std::string> words = DistinctWords(chance, kCommon + composition.units);
  std::vector<std::string> all;
  for (int64_t i = 0; i < std::ssize(words); ++i)
    all.insert(all.end(), i < kCommon ? common_times : kOthersTimes, words[i]);
  chance.Shuffle(all);
  words.resize(kCommon);
  std::string context = "Words:";
  for (const std::string& word : all) context += " " + word;
  return {.context = context + "\n",
          .question = "Which ten words stand most often in the list?",
          .lead = "The ten words that stand most often are",
          .gold = " " + Listed(words) + ".",
          .expected = words,
          .score = ShareFound};
}

}  // namespace invar::eval
