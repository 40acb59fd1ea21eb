// key_value: a list of notes, one line each, and one of them asked for in the form of the list.
#include "tools/eval/kinds.h"
#include "tools/eval/scorers.h"
#include "tools/eval/words.h"

namespace invar::eval {

Task KeyValue(const Composition& composition) {
  Chance chance(composition.seed);
  const std::vector<std::string> keys = DistinctWords(chance, composition.units + 2);
  const int64_t asked = Chance(composition.seed, 1).Below(1024) * std::ssize(keys) / 1024;
  std::string context = "Notes:\n";
  std::string value;
  for (int64_t i = 0; i < std::ssize(keys); ++i) {
    const std::string_view word = chance.OneOf(Nouns());
    context += keys[i] + ": " + std::string(word) + "\n";
    if (i == asked) value = word;
  }
  return {.context = std::move(context),
          .question = "Questions:",
          .lead = keys[asked] + ":",
          .gold = " " + value + "\n",
          .expected = {value},
          .score = ShareFound};
}

}  // namespace invar::eval
