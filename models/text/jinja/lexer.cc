// See lexer.h.
#include "models/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "models/text/unicode.h"

namespace invar::models::jinja {
namespace {

using Kind = Token::Kind;

bool IsDigit(const char c) { return c >= '0' && c <= '9'; }
bool IsAsciiSpace(const char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsNameByte(const char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || IsDigit(c) ||
         static_cast<unsigned char>(c) >= 0x80;
}

// "\r\n" and "\r" become "\n"; one final newline goes.
std::string NormalizeNewlines(const std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  StatusOr<std::vector<Token>> Run() {
    while (status_.ok() && at_ < source_.size()) Data();
    if (!status_.ok()) return status_;
    Emit(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Emit(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = InvalidArgument("chat template line " + std::to_string(line_) + ": " + what);
    at_ = source_.size();
  }
  bool Has(const std::string_view text) const { return std::string_view(source_).substr(at_, text.size()) == text; }
  void Advance(const size_t count) {
    const size_t end = std::min(source_.size(), at_ + count);
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + end, '\n'));
    at_ = end;
  }
  void SkipSpace() {
    while (at_ < source_.size() && IsAsciiSpace(source_[at_])) Advance(1);
  }

  void Data();
  void EmitData(size_t end, bool block, char sign);
  void Comment();
  bool RawBlock();
  void Tag(bool block);
  void AfterTag(char sign, bool block);
  void ExpressionToken();
  void Number();
  void String();
  void Escape(std::string& out);
  void Operator();

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // Whether at_ is at the start of a line of the source.
  std::vector<Token> tokens_;
  Status status_;
};

// Text up to the next tag, and the tag.
void Lexer::Data() {
  size_t next = at_;
  for (; next < source_.size(); ++next) {
    if (source_[next] == '{' && next + 1 < source_.size() &&
        (source_[next + 1] == '{' || source_[next + 1] == '%' || source_[next + 1] == '#')) {
      break;
    }
  }
  if (next >= source_.size()) {
    if (at_ < source_.size()) Emit(Kind::kData, source_.substr(at_));
    at_ = source_.size();
    return;
  }
  const char opener = source_[next + 1];
  const char mark = next + 2 < source_.size() ? source_[next + 2] : '\0';
  const char sign = mark == '-' || mark == '+' ? mark : '\0';
  EmitData(next, opener != '{', sign);
  Advance(next - at_ + 2 + (sign != '\0' ? 1 : 0));
  if (opener == '#') return Comment();
  if (opener == '%' && RawBlock()) return;
  Tag(opener == '%');
}

// Emits [at_, end) as data, stripped as the tag that follows asks for.
void Lexer::EmitData(const size_t end, const bool block, const char sign) {
  std::string text = source_.substr(at_, end - at_);
  if (sign == '-') {
    while (!text.empty() && IsAsciiSpace(text.back())) text.pop_back();
  } else if (sign != '+' && block) {
    const size_t line = text.rfind('\n') + 1;  // 0 where there is no newline.
    if ((line > 0 || line_starting_) && text.find_first_not_of(" \t", line) == std::string::npos) text.resize(line);
  }
  if (!text.empty()) Emit(Kind::kData, std::move(text));
}

// White space behind a closing mark.
void Lexer::AfterTag(const char sign, const bool block) {
  if (sign == '-') {
    SkipSpace();
  } else if (sign != '+' && block && at_ < source_.size() && source_[at_] == '\n') {
    Advance(1);
  }
  line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
}

void Lexer::Comment() {
  const size_t end = source_.find("#}", at_);
  if (end == std::string::npos) return Fail("comment without an end");
  const char sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0';
  Advance(end + 2 - at_);
  AfterTag(sign, true);
}

// {% raw %}...{% endraw %}; false where the tag is another one.
bool Lexer::RawBlock() {
  size_t name = source_.find_first_not_of(" \t\r\n\f\v", at_);
  if (name == std::string::npos || source_.compare(name, 3, "raw") != 0) return false;
  const size_t close = source_.find_first_not_of(" \t\r\n\f\v", name + 3);
  if (close == std::string::npos || (source_.compare(close, 2, "%}") != 0 && source_.compare(close, 3, "-%}") != 0))
    return false;
  const bool strip = source_[close] == '-';
  Advance(close + (strip ? 3 : 2) - at_);
  AfterTag(strip ? '-' : '\0', true);
  for (size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 2)) {
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    const size_t word = source_.find_first_not_of(" \t\r\n\f\v", open + (sign == '-' || sign == '+' ? 3 : 2));
    if (word == std::string::npos || source_.compare(word, 6, "endraw") != 0) continue;
    const size_t end = source_.find("%}", word);
    if (end == std::string::npos) break;
    EmitData(open, true, sign);
    const char end_sign = source_[end - 1];
    Advance(end + 2 - at_);
    AfterTag(end_sign, true);
    return true;
  }
  Fail("raw block without an end");
  return true;
}

// The inside of {{ }} or {% %}.
void Lexer::Tag(const bool block) {
  Emit(block ? Kind::kBlockBegin : Kind::kVariableBegin, "");
  const std::string_view close = block ? "%}" : "}}";
  std::string open_brackets;
  while (status_.ok()) {
    SkipSpace();
    if (at_ >= source_.size()) return Fail("tag without an end");
    const bool signed_close = (source_[at_] == '-' || (block && source_[at_] == '+')) &&
                              std::string_view(source_).substr(at_ + 1, 2) == close;
    if (open_brackets.empty() && (Has(close) || signed_close)) {
      const char sign = signed_close ? source_[at_] : '\0';
      Emit(block ? Kind::kBlockEnd : Kind::kVariableEnd, "");
      Advance(signed_close ? 3 : 2);
      return AfterTag(sign, block);
    }
    const char c = source_[at_];
    if (c == '(' || c == '[' || c == '{') open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c) return Fail(std::string("unexpected '") + c + "'");
      open_brackets.pop_back();
    }
    ExpressionToken();
  }
}

void Lexer::ExpressionToken() {
  const char c = source_[at_];
  if (IsDigit(c)) return Number();
  if (c == '"' || c == '\'') return String();
  if (!IsNameByte(c)) return Operator();
  size_t end = at_;
  while (end < source_.size() && IsNameByte(source_[end])) ++end;
  Emit(Kind::kName, source_.substr(at_, end - at_));
  Advance(end - at_);
}

// Decimal integers and floats; "1.2.3" is left to the parser as in Jinja.
void Lexer::Number() {
  size_t end = at_;
  std::string digits;
  const auto take_digits = [&] {
    while (end < source_.size() &&
           (IsDigit(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() && IsDigit(source_[end + 1])))) {
      if (source_[end] != '_') digits += source_[end];
      ++end;
    }
  };
  take_digits();
  bool is_float = false;
  const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // In x.0.1 the parts are integers.
  if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
    is_float = true;
    digits += source_[end++];
    take_digits();
  }
  const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
  if (!after_dot && end + 1 + sign < source_.size() && (source_[end] | 0x20) == 'e' &&
      IsDigit(source_[end + 1 + sign])) {
    is_float = true;
    digits.append(source_, end, 1 + sign);
    end += 1 + sign;
    take_digits();
  }
  if (end < source_.size() && IsNameByte(source_[end])) return Fail("a number is followed by a letter");
  Emit(is_float ? Kind::kFloat : Kind::kInteger, digits);
  Advance(end - at_);
}

void Lexer::String() {
  const char quote = source_[at_];
  const int line = line_;
  std::string value;
  Advance(1);
  while (at_ < source_.size() && source_[at_] != quote) {
    if (source_[at_] == '\\' && at_ + 1 < source_.size()) {
      Escape(value);
    } else {
      value += source_[at_];
      Advance(1);
    }
  }
  if (at_ >= source_.size()) return Fail("string without an end");
  Advance(1);
  tokens_.push_back({Kind::kString, std::move(value), line});
}

// One backslash escape, as in Python. Unknown ones keep their backslash.
void Lexer::Escape(std::string& out) {
  static constexpr std::pair<char, char> kSimple[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'},  {'b', '\b'},  {'f', '\f'},
                                                      {'v', '\v'}, {'a', '\a'}, {'\\', '\\'}, {'\'', '\''}, {'"', '"'}};
  const char c = source_[at_ + 1];
  for (const auto& [name, value] : kSimple) {
    if (c == name) {
      out += value;
      return Advance(2);
    }
  }
  if (c == '\n') return Advance(2);
  const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits > 0) {
    int32_t code_point = 0;
    for (int i = 0; i < digits; ++i) {
      const char d = at_ + 2 + i < source_.size() ? source_[at_ + 2 + i] : '\0';
      const char lower = static_cast<char>(d | 0x20);
      const int value = IsDigit(d) ? d - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
      if (value < 0 || code_point > 0x10FFFF / 16) return Fail("bad escape in a string");
      code_point = code_point * 16 + value;
    }
    if (code_point >= 0xD800 && code_point <= 0xDFFF) return Fail("surrogate in a string");
    AppendUtf8(code_point, out);
    return Advance(2 + digits);
  }
  if (c >= '0' && c <= '7') {
    int32_t value = 0, count = 0;
    while (count < 3 && at_ + 1 + count < source_.size() && source_[at_ + 1 + count] >= '0' &&
           source_[at_ + 1 + count] <= '7') {
      value = value * 8 + (source_[at_ + 1 + count++] - '0');
    }
    AppendUtf8(value, out);
    return Advance(1 + count);
  }
  out += '\\';
  Advance(1);
}

void Lexer::Operator() {
  static constexpr std::array<std::string_view, 26> kOperators = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*",
                                                                  "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                                                  "]",  "{",  "}",  ",",  ".",  ":",  "|", ";"};
  for (const std::string_view op : kOperators) {
    if (Has(op)) {
      Emit(Kind::kOperator, std::string(op));
      return Advance(op.size());
    }
  }
  Fail(std::string("unexpected character '") + source_[at_] + "'");
}

}  // namespace

StatusOr<std::vector<Token>> Tokenize(const std::string_view source) { return Lexer(NormalizeNewlines(source)).Run(); }

}  // namespace invar::models::jinja
