// niah_multiquery: the values of four keys.
#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"
#include "tools/eval/scorers.h"

namespace invar::eval {

Task NiahFourQueries(const Composition& composition) {
  Chance chance(composition.seed);
  const std::vector<Needle> needles = DrawNeedles(chance, 4);
  std::vector<std::string> lines;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (const Needle& needle : needles) {
    lines.push_back(needle.Sentence());
    keys.push_back(needle.key);
    values.push_back(needle.value);
  }
  return {.context = Haystack(composition, chance, lines),
          .question = "What are the codes of " + Listed(keys) + "?",
          .lead = "The codes of " + Listed(keys) + " are",
          .gold = " " + Listed(values) + ".",
          .expected = values,
          .score = ShareFound};
}

}  // namespace invar::eval
