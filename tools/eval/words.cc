// See words.h. Everyday words, most of them one token of a usual vocabulary.
#include "tools/eval/words.h"

#include <array>
#include <set>

namespace invar::eval {
namespace {

constexpr auto kAdjectives = std::to_array<std::string_view>(
    {"quiet",   "green",  "narrow", "bright", "heavy", "gentle", "hollow",  "early",  "silver",  "broken",
     "distant", "warm",   "wooden", "sudden", "plain", "steep",  "golden",  "windy",  "empty",   "famous",
     "honest",  "proud",  "rapid",  "rough",  "sharp", "simple", "slow",    "soft",   "strange", "sweet",
     "thick",   "tired",  "tall",   "useful", "wild",  "young",  "ancient", "brave",  "calm",    "clever",
     "curious", "deep",   "dusty",  "faint",  "fresh", "humble", "large",   "lonely", "modern",  "pale",
     "patient", "polite", "rare",   "round",  "royal", "rusty"});

constexpr auto kNouns = std::to_array<std::string_view>(
    {"river",   "garden",  "lamp",     "bridge", "letter",  "market",  "window", "forest",  "harbour", "clock",
     "basket",  "kitchen", "mirror",   "ladder", "ticket",  "engine",  "island", "blanket", "castle",  "candle",
     "bottle",  "wagon",   "village",  "tower",  "tunnel",  "table",   "stone",  "spoon",   "shadow",  "school",
     "saddle",  "rope",    "road",     "pocket", "pillow",  "pencil",  "paper",  "orchard", "needle",  "mountain",
     "meadow",  "library", "lantern",  "knife",  "journal", "hammer",  "guitar", "gate",    "flower",  "field",
     "feather", "farmer",  "engineer", "door",   "desk",    "curtain", "corner", "cloud",   "chair",   "cellar",
     "carpet",  "canal",   "cabin",    "button", "brush",   "bread",   "boat",   "blade",   "barrel",  "bank",
     "bag",     "anchor",  "apple",    "arrow",  "tailor",  "teacher", "sailor", "baker",   "painter", "doctor",
     "horse",   "falcon",  "rabbit",   "salmon", "spider",  "turtle",  "wolf",   "goose"});

constexpr auto kVerbs = std::to_array<std::string_view>(
    {"carries",  "follows", "watches", "paints", "repairs", "forgets", "remembers", "finds",
     "sells",    "buys",    "moves",   "opens",  "closes",  "counts",  "cleans",    "describes",
     "measures", "leaves",  "visits",  "passes", "touches", "lifts"});

constexpr auto kPlaces = std::to_array<std::string_view>(
    {"behind the mill", "near the old well", "at the end of the street", "in the north of the valley",
     "on the way to town", "under the roof", "beside the railway", "before the first snow", "after a long winter",
     "in the middle of the night", "without a word", "for the third time", "with great care", "on a quiet morning",
     "in front of the station", "by the light of the moon"});

constexpr auto kNames = std::to_array<std::string_view>(
    {"Anna",   "Ben",   "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack",
     "Karen",  "Leo",   "Maria", "Noah",  "Olga", "Paul",  "Quinn", "Rosa",  "Sam",  "Tina",
     "Victor", "Wendy", "Yuki",  "Zoe",   "Ali",  "Bruno", "Carla", "Dan",   "Eva",  "Fred"});

constexpr auto kCities = std::to_array<std::string_view>(
    {"Paris", "London", "Tokyo",  "Rome",   "Berlin", "Madrid", "Seoul",  "Lisbon", "Oslo",   "Vienna",
     "Cairo", "Lima",   "Dublin", "Athens", "Prague", "Warsaw", "Boston", "Delhi",  "Sydney", "Toronto"});

}  // namespace

std::span<const std::string_view> Adjectives() { return kAdjectives; }
std::span<const std::string_view> Nouns() { return kNouns; }
std::span<const std::string_view> Verbs() { return kVerbs; }
std::span<const std::string_view> Places() { return kPlaces; }
std::span<const std::string_view> Names() { return kNames; }
std::span<const std::string_view> Cities() { return kCities; }

std::vector<std::string> DistinctPairs(Chance& chance, const int64_t count) {
  // Far below all pairs, so that drawing again ends soon; above, a second noun follows.
  const int64_t pairs = std::ssize(kAdjectives) * std::ssize(kNouns);
  std::set<std::string> taken;
  std::vector<std::string> out;
  while (std::ssize(out) < count) {
    std::string pair = std::string(chance.OneOf(kAdjectives)) + "-" + std::string(chance.OneOf(kNouns));
    if (count > pairs / 2) pair += "-" + std::string(chance.OneOf(kNouns));
    if (taken.insert(pair).second) out.push_back(std::move(pair));
  }
  return out;
}

std::vector<std::string> DistinctWords(Chance& chance, const int64_t count) {
  std::vector<std::string> words(kNouns.begin(), kNouns.end());
  words.insert(words.end(), kAdjectives.begin(), kAdjectives.end());
  chance.Shuffle(words);
  const int64_t missing = count - std::ssize(words);
  if (missing > 0) {
    for (std::string& pair : DistinctPairs(chance, missing)) words.push_back(std::move(pair));
  }
  words.resize(count);
  return words;
}

}  // namespace invar::eval
