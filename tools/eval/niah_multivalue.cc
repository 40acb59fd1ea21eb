// niah_multivalue: all four values of one key.
#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"
#include "tools/eval/scorers.h"

namespace invar::eval {

Task NiahFourValues(const Composition& composition) {
  Chance chance(composition.seed);
  std::vector<Needle> needles = DrawNeedles(chance, 4);
  std::vector<std::string> lines;
  std::vector<std::string> values;
  for (Needle& needle : needles) {
    needle.key = needles[0].key;
    lines.push_back(needle.Sentence());
    values.push_back(needle.value);
  }
  return {.context = Haystack(composition, chance, lines),
          .question = "What are all the codes of " + needles[0].key + "?",
          .lead = "The codes of " + needles[0].key + " are",
          .gold = " " + Listed(values) + ".",
          .expected = values,
          .score = ShareFound};
}

}  // namespace invar::eval
