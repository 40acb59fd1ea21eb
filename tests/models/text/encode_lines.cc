// Tokenizes lines for comparison with the reference library: tools/oracle/text/compare_tokenizers.py drives it.
// Usage: encode_lines MODEL_FOLDER. Each input line is `parse HEX` or `text HEX`, HEX being the bytes of the text; each
// output line is the ids, a tab, and the decoded text in HEX.
#include <cstdio>
#include <iostream>
#include <string>

#include "models/text.h"

namespace {

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string ToHex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  return hex;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto tokenizer = invar::models::LoadTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().ToString() << '\n';
    return 1;
  }
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const bool parse = line.starts_with("parse ");
    const auto ids =
        (*tokenizer)
            ->Encode(FromHex(line.substr(line.find(' ') + 1)),
                     parse ? invar::models::ControlTokens::kParse : invar::models::ControlTokens::kStayText, false, {});
    if (!ids.ok()) {
      std::cout << "error " << ids.status().message() << "\t\n";
      continue;
    }
    for (const invar::TokenId id : *ids) std::cout << id << ' ';
    std::cout << '\t' << ToHex((*tokenizer)->Decode(*ids, false)) << '\n';
  }
}
