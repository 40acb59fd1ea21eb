// Words that tasks and noise are made of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/eval/chance.h"

namespace invar::eval {

std::span<const std::string_view> Adjectives();
std::span<const std::string_view> Nouns();
std::span<const std::string_view> Verbs();   // "carries"
std::span<const std::string_view> Places();  // "behind the mill"
std::span<const std::string_view> Names();
std::span<const std::string_view> Cities();

// So many, no two alike: nouns and adjectives while they last, then pairs of them ("quiet-river").
std::vector<std::string> DistinctWords(Chance& chance, int64_t count);
// So many pairs of them, no two alike.
std::vector<std::string> DistinctPairs(Chance& chance, int64_t count);

}  // namespace invar::eval
