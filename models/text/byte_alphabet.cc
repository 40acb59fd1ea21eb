// See byte_alphabet.h.
#include "models/text/byte_alphabet.h"

#include <array>

#include "models/text/unicode.h"

namespace invar::models {
namespace {

constexpr bool IsPrintable(const int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The last spelt character is U+0143: 0x100 + 68 others - 1.
constexpr int32_t kAlphabetEnd = 0x144;

struct Tables {
  std::array<int32_t, 256> to_character{};
  std::array<int32_t, kAlphabetEnd> to_byte{};
};

constexpr Tables MakeTables() {
  Tables tables;
  tables.to_byte.fill(-1);
  int32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t character = IsPrintable(byte) ? byte : next++;
    tables.to_character[byte] = character;
    tables.to_byte[character] = byte;
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

int32_t ByteToAlphabet(const unsigned char byte) { return kTables.to_character[byte]; }

std::optional<std::string> AlphabetToBytes(const std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const Utf8Char c = DecodeUtf8(spelling, i);
    if (c.code_point < 0 || c.code_point >= kAlphabetEnd || kTables.to_byte[c.code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(kTables.to_byte[c.code_point]);
    i += c.bytes;
  }
  return bytes;
}

}  // namespace invar::models
