// Needles in a haystack: the sentences that are asked for, spread over the noise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/eval/chance.h"
#include "tools/eval/task.h"

namespace invar::eval {

struct Needle {
  std::string key;
  std::string value;
  std::string Sentence() const { return "The code of " + key + " is " + value + "."; }
};

// `count` needles with pairs of words as keys, and numbers of seven digits.
std::vector<Needle> DrawNeedles(Chance& chance, int64_t count);

// `lines`, each at a depth that `chance` draws, between composition.units sentences of noise.
std::string Haystack(const Composition& composition, Chance& chance, const std::vector<std::string>& lines);

// The first needle is asked for.
Task AskForOne(std::string context, const Needle& needle);

// "a", "a and b", "a, b and c".
std::string Listed(const std::vector<std::string>& items);

}  // namespace invar::eval
