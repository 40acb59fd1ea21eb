// niah_multikey_1 to 3: the one needle asked for, among others that look like it.
#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"

namespace invar::eval {
namespace {

// Needle after needle; the one asked for, at a depth that `chance` draws, is the same however many there are.
Task AskAmongNeedles(const std::vector<Needle>& needles, Chance chance) {
  std::vector<const Needle*> order;
  for (const Needle& needle : needles) order.push_back(&needle);
  std::swap(order[0], order[chance.Below(1024) * std::ssize(order) / 1024]);
  std::string context;
  for (const Needle* needle : order) context += needle->Sentence() + "\n";
  return AskForOne(std::move(context), needles[0]);
}

}  // namespace

Task NiahFourKeys(const Composition& composition) {
  Chance chance(composition.seed);
  const std::vector<Needle> needles = DrawNeedles(chance, 4);
  std::vector<std::string> lines;
  for (const Needle& needle : needles) lines.push_back(needle.Sentence());
  return AskForOne(Haystack(composition, chance, lines), needles[0]);
}

Task NiahAllNeedles(const Composition& composition) {
  Chance chance(composition.seed);
  return AskAmongNeedles(DrawNeedles(chance, composition.units + 1), Chance(composition.seed, 1));
}

Task NiahAllUuids(const Composition& composition) {
  Chance chance(composition.seed);
  std::vector<Needle> needles(composition.units + 1);
  for (Needle& needle : needles) {
    needle.key = chance.Uuid();
    needle.value = chance.Uuid();
  }
  return AskAmongNeedles(needles, Chance(composition.seed, 1));
}

}  // namespace invar::eval
