// See decoder.h. The reference turns a whole run of byte-fallback tokens into replacement characters when any part of
// it is invalid; a stream cannot take back what it has sent, so here only the invalid bytes become U+FFFD.
#include "models/text/decoder.h"

#include <optional>

#include "models/text/byte_alphabet.h"
#include "models/text/json_fields.h"

namespace invar::models {
namespace {

int HexDigit(const char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The byte of "<0xNN>".
std::optional<char> FallbackByte(const std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return std::nullopt;
  const int high = HexDigit(spelling[3]), low = HexDigit(spelling[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

void ReplaceAll(const std::string& from, const std::string& to, std::string& text) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

StatusOr<Decoder> Decoder::Load(const nlohmann::json& section, const std::string& file) {
  Decoder decoder;
  const std::string type = TypeOf(section);
  if (type == "ByteLevel") {
    decoder.byte_level_ = true;
    return decoder;
  }
  const nlohmann::json& stages = Member(section, "decoders");
  if (type == "Sequence" && stages.is_array()) {
    for (size_t i = 0; i < stages.size(); ++i) {
      const std::string key = "decoder.decoders[" + std::to_string(i) + "]";
      if (Status s = decoder.AddStage(stages[i], file, key); !s.ok()) return s;
    }
    return decoder;
  }
  return UnsupportedField(file, "decoder", "ByteLevel, or Sequence", section);
}

Status Decoder::AddStage(const nlohmann::json& section, const std::string& file, const std::string& key) {
  const std::string type = TypeOf(section);
  if (type == "ByteLevel" && replacements_.empty() && !byte_fallback_ && !fused_) {
    byte_level_ = true;
    return OkStatus();
  }
  if (type == "Replace" && !byte_fallback_ && !fused_) {
    StatusOr<std::string> from = StringMember(Member(section, "pattern"), "String", file, key + ".pattern");
    if (!from.ok()) return from.status();
    StatusOr<std::string> to = StringMember(section, "content", file, key);
    if (!to.ok()) return to.status();
    if (from->empty()) return UnsupportedField(file, key + ".pattern.String", "a string of at least one byte", section);
    replacements_.emplace_back(*from, *to);
    return OkStatus();
  }
  if (type == "ByteFallback" && !fused_) {
    byte_fallback_ = true;
    return OkStatus();
  }
  if (type == "Fuse") {
    fused_ = true;
    return OkStatus();
  }
  if (type == "Strip" && fused_) {
    const nlohmann::json& start = Member(section, "start");
    if (Member(section, "content") == " " && Member(section, "stop") == 0 && (start == 0 || start == 1)) {
      strips_leading_space_ = strips_leading_space_ || start == 1;
      return OkStatus();
    }
    return UnsupportedField(file, key, "Strip of \" \" with start 0 or 1 and stop 0", section);
  }
  return UnsupportedField(file, key, "Replace, ByteFallback, Fuse, Strip in this order", section);
}

std::string Decoder::TokenBytes(const std::string_view spelling) const {
  if (byte_level_) return AlphabetToBytes(spelling).value_or(std::string(spelling));
  std::string text(spelling);
  for (const auto& [from, to] : replacements_) ReplaceAll(from, to, text);
  if (byte_fallback_) {
    if (const std::optional<char> byte = FallbackByte(text)) return std::string(1, *byte);
  }
  return text;
}

}  // namespace invar::models
