// counting: how often something was seen, two to nine times in the whole text.
#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"
#include "tools/eval/scorers.h"

namespace invar::eval {

Task Counting(const Composition& composition) {
  Chance chance(composition.seed);
  const int64_t count = 2 + chance.Below(8);
  const std::vector<std::string> lines(count, "A heron was seen.");
  return {.context = Haystack(composition, chance, lines),
          .question = "How many times was a heron seen? Answer with a number.",
          .lead = "The number of times a heron was seen is",
          .gold = " " + std::to_string(count) + ".",
          .expected = {std::to_string(count)},
          .score = SameNumber};
}

}  // namespace invar::eval
