// niah_single_1 to 3: one needle.
#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"

namespace invar::eval {
namespace {

// Noise whose keys are alike everywhere: what merging gains most from.
constexpr std::string_view kRepeats = "The wind turns the mill. The mill grinds the corn. So the day goes round.";

}  // namespace

Task NiahNumberInRepeats(const Composition& composition) {
  const NoiseText repeats(kRepeats);
  return NiahNumberInText({.seed = composition.seed, .units = composition.units, .noise = repeats});
}

Task NiahNumberInText(const Composition& composition) {
  Chance chance(composition.seed);
  const std::vector<Needle> needles = DrawNeedles(chance, 1);
  return AskForOne(Haystack(composition, chance, {needles[0].Sentence()}), needles[0]);
}

Task NiahUuidInText(const Composition& composition) {
  Chance chance(composition.seed);
  std::vector<Needle> needles = DrawNeedles(chance, 1);
  needles[0].value = chance.Uuid();
  return AskForOne(Haystack(composition, chance, {needles[0].Sentence()}), needles[0]);
}

}  // namespace invar::eval
