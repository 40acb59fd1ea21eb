// vt: one chain of five variables, each given the one before; all that have the value are asked for.
#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"
#include "tools/eval/scorers.h"

namespace invar::eval {

Task VariableTracking(const Composition& composition) {
  constexpr int kHops = 4;
  Chance chance(composition.seed);
  const std::string value = chance.Number(5);
  std::vector<std::string> names;
  std::vector<std::string> lines;
  for (int hop = 0; hop <= kHops; ++hop) {
    names.push_back(chance.Letters(5, 'A'));
    lines.push_back("VAR " + names[hop] + " = " + (hop == 0 ? value : "VAR " + names[hop - 1]) + ".");
  }
  // Lines of a chain stand in their order: a part of the noise each, anywhere in it.
  std::string context;
  int32_t sentence = 0;
  for (int hop = 0; hop <= kHops; ++hop) {
    const int64_t depth = (int64_t{hop} * 1024 + chance.Below(1024)) * composition.units / (1024 * (kHops + 1));
    for (; sentence < depth; ++sentence) context += composition.noise.Sentence(composition.seed, sentence) + " ";
    context += lines[hop] + " ";
  }
  for (; sentence < composition.units; ++sentence)
    context += composition.noise.Sentence(composition.seed, sentence) + " ";
  context.back() = '\n';
  return {.context = std::move(context),
          .question = "Which variables have the value " + value + "? Name all five.",
          .lead = "The variables that have the value " + value + " are",
          .gold = " " + Listed(names) + ".",
          .expected = names,
          .score = ShareFound};
}

}  // namespace invar::eval
