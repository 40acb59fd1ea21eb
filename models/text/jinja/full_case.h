// Case of letters as Python's str has it: full mappings, so that one letter may become several ("ß" is "SS" in capitals
// and "Ss" where it begins a word), and a sigma that ends a word has a form of its own.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace invar::models::jinja {

void AppendUpper(int32_t code_point, std::string& out);
void AppendTitle(int32_t code_point, std::string& out);
// But for a sigma that ends a word: U+03C2.
void AppendLower(int32_t code_point, std::string& out);

// Whether it has a case, so that what follows it is inside of a word.
bool IsCased(int32_t code_point);
// Whether a word goes on behind it if it did before: marks, apostrophes and the like.
bool IsCaseIgnorable(int32_t code_point);

}  // namespace invar::models::jinja
