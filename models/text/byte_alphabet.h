// GPT-2's printable alphabet: every byte is spelt as one character, printable Latin-1 as itself and the 68 others as
// U+0100 and up in the order of the bytes. Vocabularies of byte-level BPE are written in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace invar::models {

// The character that spells `byte`. Threads: any.
int32_t ByteToAlphabet(unsigned char byte);
// The bytes that `spelling` stands for, or nothing where a character is not in the alphabet.
std::optional<std::string> AlphabetToBytes(std::string_view spelling);

}  // namespace invar::models
