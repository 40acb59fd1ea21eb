// counting: how often a bird was seen, two to seven times, each time with its number; other birds are counted already,
// as examples. A model of a hundred million parameters does not count without the numbers.
#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"
#include "tools/eval/scorers.h"

namespace invar::eval {
namespace {

constexpr int64_t kCountMin = 2;
constexpr int64_t kCountMax = 7;

std::string Seen(const std::string& bird, const int64_t count) {
  std::string line = "Seen: " + bird + " 1";
  for (int64_t i = 2; i <= count; ++i) line += ", " + bird + " " + std::to_string(i);
  return line + ".";
}

std::string Total(const std::string& bird) { return "Number of times " + bird + " was seen:"; }

}  // namespace

Task Counting(const Composition& composition) {
  Chance chance(composition.seed);
  std::vector<std::string> birds = {"owl", "crow", "duck", "swan", "hawk"};
  chance.Shuffle(birds);
  std::vector<int64_t> counts;
  std::vector<std::string> lines;
  for (const std::string& bird : birds) {
    counts.push_back(kCountMin + chance.Below(kCountMax - kCountMin + 1));
    lines.push_back(Seen(bird, counts.back()));
  }
  std::string context = Haystack(composition, chance, lines);
  for (size_t i = 1; i < birds.size(); ++i) context += Total(birds[i]) + " " + std::to_string(counts[i]) + "\n";
  return {.context = std::move(context),
          .question = "And one more:",
          .lead = Total(birds.front()),
          .gold = " " + std::to_string(counts.front()) + "\n",
          .expected = {std::to_string(counts.front())},
          .score = SameNumber};
}

}  // namespace invar::eval
