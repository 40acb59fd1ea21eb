// See pretokenizer.h. Each rule below is one alternative of the pattern, tried in the pattern's order.
#include "models/text/pretokenizer.h"

#include <limits>

#include "base/check.h"
#include "models/text/json_fields.h"
#include "models/text/unicode.h"

namespace invar::models {
namespace {

constexpr int kAnyRun = std::numeric_limits<int>::max();

// Classes of one character as the patterns see them. An invalid byte is a symbol.
struct CharClass {
  int32_t code_point;
  size_t end;
  bool letter = false;  // With marks where the pattern says so.
  bool number = false;
  bool space = false;
  bool newline = false;
  bool symbol() const { return !letter && !number && !space; }
};

CharClass Classify(const std::string_view text, const size_t begin, const bool marks_are_letters) {
  const Utf8Char c = DecodeUtf8(text, begin);
  CharClass out{.code_point = c.code_point, .end = begin + c.bytes};
  if (c.code_point == Utf8Char::kInvalidByte) return out;
  out.letter = IsLetter(c.code_point) || (marks_are_letters && IsMark(c.code_point));
  out.number = !out.letter && IsNumber(c.code_point);
  out.space = !out.letter && !out.number && IsWhiteSpace(c.code_point);
  out.newline = c.code_point == '\r' || c.code_point == '\n';
  return out;
}

// End of the run of characters at `begin` for which `in` holds, at most `limit` of them.
template <typename Predicate>
size_t RunEnd(const std::string_view text, size_t begin, const bool marks, const Predicate in,
              const int limit = kAnyRun) {
  for (int i = 0; i < limit && begin < text.size(); ++i) {
    const CharClass c = Classify(text, begin, marks);
    if (!in(c)) break;
    begin = c.end;
  }
  return begin;
}

constexpr auto kLetter = [](const CharClass& c) { return c.letter; };
constexpr auto kNumber = [](const CharClass& c) { return c.number; };
constexpr auto kSymbol = [](const CharClass& c) { return c.symbol(); };
constexpr auto kNewline = [](const CharClass& c) { return c.newline; };

// 's 't 're 've 'm 'll 'd; with `fold` in any case, where U+017F counts as s. `begin` where there is none.
size_t ContractionEnd(const std::string_view text, const size_t begin, const bool fold) {
  if (text[begin] != '\'' || begin + 1 >= text.size()) return begin;
  const auto lower = [&](size_t i) -> char {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = lower(begin + 1), second = lower(begin + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return begin + 3;
  if (fold && text.substr(begin + 1, 2) == "\xC5\xBF") return begin + 3;
  return begin;
}

// `\s*[\r\n]+` (with `newlines`), then `\s+(?!\S)`, then `\s+`, on the run of white space at `begin`.
size_t SpaceEnd(const std::string_view text, const size_t begin, const bool newlines) {
  size_t end = begin, last_start = begin, after_newline = begin;
  while (end < text.size()) {
    const CharClass c = Classify(text, end, false);
    if (!c.space) break;
    last_start = end;
    end = c.end;
    if (c.newline) after_newline = end;
  }
  if (newlines && after_newline > begin) return after_newline;
  // The look-ahead leaves the last space to the word that follows, unless it is the only one.
  if (end < text.size() && last_start > begin) return last_start;
  return end;
}

}  // namespace

size_t PreTokenizer::PieceEnd(const Pattern& pattern, const std::string_view text, const size_t begin) {
  const bool marks = pattern.marks_are_letters;
  const bool qwen = pattern.style == Pattern::Style::kQwen;
  if (const size_t end = ContractionEnd(text, begin, qwen); end > begin) return end;
  const CharClass first = Classify(text, begin, marks);
  const bool plain_space = first.code_point == ' ';
  // Letters, after one character: a plain space (GPT-2), or anything but newlines, letters and digits (Qwen).
  if (qwen ? !first.newline && !IsLetter(first.code_point) && !first.number : plain_space) {
    if (const size_t end = RunEnd(text, first.end, marks, kLetter); end > first.end) return end;
  }
  if (first.letter) return RunEnd(text, begin, marks, kLetter);
  // Digits.
  if (!qwen && plain_space) {
    if (const size_t end = RunEnd(text, first.end, marks, kNumber); end > first.end) return end;
  }
  if (first.number) return RunEnd(text, begin, marks, kNumber, pattern.digits);
  // Symbols after an optional space; in the Qwen style with the newlines that follow.
  const size_t symbols = plain_space ? first.end : begin;
  if (const size_t end = RunEnd(text, symbols, marks, kSymbol); end > symbols) {
    return qwen ? RunEnd(text, end, marks, kNewline) : end;
  }
  return SpaceEnd(text, begin, qwen);
}

size_t PreTokenizer::PieceEnd(const Digits& digits, const std::string_view text, const size_t begin) {
  const CharClass first = Classify(text, begin, false);
  if (first.number) return digits.individual ? first.end : RunEnd(text, begin, false, kNumber);
  return RunEnd(text, begin, false, [](const CharClass& c) { return !c.number; });
}

StatusOr<PreTokenizer> PreTokenizer::Load(const nlohmann::json& section, const std::string& file) {
  PreTokenizer pre;
  if (section.is_null()) return pre;
  if (Status s = pre.Add(section, file, "pre_tokenizer"); !s.ok()) return s;
  return pre;
}

Status PreTokenizer::Add(const nlohmann::json& section, const std::string& file, const std::string& key) {
  const std::string type = TypeOf(section);
  if (byte_level_) return UnsupportedField(file, key, "nothing after ByteLevel", section);
  if (type == "Split") return AddSplit(section, file, key);
  if (type == "ByteLevel") return AddByteLevel(section, file, key);
  if (type == "Digits") {
    const StatusOr<bool> individual = BoolMember(section, "individual_digits", false, file, key);
    if (!individual.ok()) return individual.status();
    stages_.emplace_back(Digits{*individual});
    return OkStatus();
  }
  const nlohmann::json& members = Member(section, "pretokenizers");
  if (type == "Sequence" && members.is_array()) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (Status s = Add(members[i], file, key + ".pretokenizers[" + std::to_string(i) + "]"); !s.ok()) return s;
    }
    return OkStatus();
  }
  return UnsupportedField(file, key, "Split, Digits, ByteLevel or Sequence", section);
}

Status PreTokenizer::AddSplit(const nlohmann::json& section, const std::string& file, const std::string& key) {
  struct Known {
    std::string_view text;
    Pattern pattern;
  };
  using Style = Pattern::Style;
  static constexpr Known kKnown[] = {
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {Style::kQwen, false, 1}},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {Style::kQwen, false, 3}},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {Style::kQwen, true, 1}},
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {Style::kGpt2, false, kAnyRun}},
  };
  const nlohmann::json& pattern = Member(section, "pattern");
  StatusOr<std::string> regex = StringMember(pattern, "Regex", file, key + ".pattern");
  if (!regex.ok()) return regex.status();
  const StatusOr<bool> invert = BoolMember(section, "invert", false, file, key);
  if (!invert.ok()) return invert.status();
  const nlohmann::json& behavior = Member(section, "behavior");
  // The known patterns cover every character, so that keeping the matches (Removed, inverted) is the same as isolating.
  if (!(behavior == "Isolated" || (behavior == "Removed" && *invert))) {
    return UnsupportedField(file, key + ".behavior", "Isolated, or Removed with invert", behavior);
  }
  for (const Known& known : kKnown) {
    if (known.text == *regex) {
      stages_.emplace_back(known.pattern);
      return OkStatus();
    }
  }
  return UnsupportedField(file, key + ".pattern.Regex", "the pattern of GPT-2, Qwen2/3, Qwen3.5 or Llama-3", *regex);
}

Status PreTokenizer::AddByteLevel(const nlohmann::json& section, const std::string& file, const std::string& key) {
  const StatusOr<bool> use_regex = BoolMember(section, "use_regex", true, file, key);
  if (!use_regex.ok()) return use_regex.status();
  const StatusOr<bool> prefix_space = BoolMember(section, "add_prefix_space", true, file, key);
  if (!prefix_space.ok()) return prefix_space.status();
  if (*prefix_space) stages_.emplace_back(PrefixSpace{});
  if (*use_regex) stages_.emplace_back(Pattern{Pattern::Style::kGpt2, false, kAnyRun});
  byte_level_ = true;
  return OkStatus();
}

std::vector<std::string_view> PreTokenizer::Split(const std::string_view text, std::string& storage) const {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const Stage& stage : stages_) {
    std::vector<std::string_view> next;
    if (std::holds_alternative<PrefixSpace>(stage)) {
      // Only ByteLevel has this stage, and nothing comes after ByteLevel, so that it runs at most once.
      std::string spaced;
      std::vector<size_t> ends;
      for (const std::string_view piece : pieces) {
        if (piece.front() != ' ') spaced += ' ';
        spaced += piece;
        ends.push_back(spaced.size());
      }
      storage = std::move(spaced);
      for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
        next.push_back(std::string_view(storage).substr(begin, ends[i] - begin));
      }
    }
    for (const std::string_view piece : pieces) {
      for (size_t begin = 0; begin < piece.size() && !std::holds_alternative<PrefixSpace>(stage);) {
        const size_t end = std::holds_alternative<Pattern>(stage) ? PieceEnd(std::get<Pattern>(stage), piece, begin)
                                                                  : PieceEnd(std::get<Digits>(stage), piece, begin);
        DebugCheck(end > begin, "every rule takes at least one character", begin, end);
        next.push_back(piece.substr(begin, end - begin));
        begin = end;
      }
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace invar::models
