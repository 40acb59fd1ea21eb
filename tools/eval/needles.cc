// See needles.h.
#include "tools/eval/needles.h"

#include "tools/eval/scorers.h"
#include "tools/eval/words.h"

namespace invar::eval {
namespace {

// Steps of depth; a depth is the same share of the noise however long that is.
constexpr int64_t kDepths = 1024;

}  // namespace

std::vector<Needle> DrawNeedles(Chance& chance, const int64_t count) {
  std::vector<Needle> needles;
  for (std::string& key : DistinctPairs(chance, count)) needles.push_back({std::move(key), chance.Number(7)});
  return needles;
}

std::string Haystack(const Composition& composition, Chance& chance, const std::vector<std::string>& lines) {
  std::vector<std::vector<const std::string*>> behind(composition.units + 1);
  for (const std::string& line : lines) behind[chance.Below(kDepths) * composition.units / kDepths].push_back(&line);
  std::string text;
  for (int32_t i = 0; i <= composition.units; ++i) {
    for (const std::string* line : behind[i]) text += *line + " ";
    if (i < composition.units) text += composition.noise.Sentence(composition.seed, i) + " ";
  }
  text.back() = '\n';
  return text;
}

Task AskForOne(std::string context, const Needle& needle) {
  return {.context = std::move(context),
          .question = "What is the code of " + needle.key + "?",
          .lead = "The code of " + needle.key + " is",
          .gold = " " + needle.value + ".",
          .expected = {needle.value},
          .score = ShareFound};
}

std::string Listed(const std::vector<std::string>& items) {
  std::string text = items.front();
  for (size_t i = 1; i < items.size(); ++i) text += (i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

}  // namespace invar::eval
