// See normalizer.h.
#include "models/text/normalizer.h"

#include "models/text/json_fields.h"
#include "models/text/unicode.h"

namespace invar::models {

StatusOr<Normalizer> Normalizer::Load(const nlohmann::json& section, const std::string& file) {
  Normalizer normalizer;
  if (section.is_null()) return normalizer;
  if (Status s = normalizer.Add(section, file, "normalizer"); !s.ok()) return s;
  return normalizer;
}

Status Normalizer::Add(const nlohmann::json& section, const std::string& file, const std::string& key) {
  const std::string type = TypeOf(section);
  if (type == "NFC") {
    stages_.emplace_back(Nfc{});
    return OkStatus();
  }
  if (type == "Prepend") {
    StatusOr<std::string> prefix = StringMember(section, "prepend", file, key);
    if (!prefix.ok()) return prefix.status();
    stages_.emplace_back(Prepend{*prefix});
    return OkStatus();
  }
  if (type == "Replace") {
    const nlohmann::json& pattern = Member(section, "pattern");
    StatusOr<std::string> from = StringMember(pattern, "String", file, key + ".pattern");
    if (!from.ok()) return from.status();
    if (from->empty()) return UnsupportedField(file, key + ".pattern.String", "a string of at least one byte", pattern);
    StatusOr<std::string> to = StringMember(section, "content", file, key);
    if (!to.ok()) return to.status();
    stages_.emplace_back(Replace{*from, *to});
    return OkStatus();
  }
  const nlohmann::json& members = Member(section, "normalizers");
  if (type == "Sequence" && members.is_array()) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (Status s = Add(members[i], file, key + ".normalizers[" + std::to_string(i) + "]"); !s.ok()) return s;
    }
    return OkStatus();
  }
  return UnsupportedField(file, key, "NFC, Prepend, Replace or Sequence", section);
}

void Normalizer::Run(const Nfc&, MaskedText& text) {
  MaskedText out;
  out.text = ToNfc(text.text);
  if (out.text == text.text) return;
  // Runs of one kind, normalized alone, give the mask where nothing was composed across their borders.
  std::string joined;
  for (size_t begin = 0; begin < text.text.size();) {
    const char kind = text.mask[begin];
    size_t end = text.mask.find(kind == MaskedText::kParseByte ? MaskedText::kTextByte : MaskedText::kParseByte, begin);
    if (end == std::string::npos) end = text.text.size();
    joined += ToNfc(std::string_view(text.text).substr(begin, end - begin));
    out.mask.resize(joined.size(), kind);
    begin = end;
  }
  if (joined != out.text) out.mask.assign(out.text.size(), MaskedText::kTextByte);
  text = std::move(out);
}

void Normalizer::Run(const Prepend& stage, MaskedText& text) {
  if (text.text.empty()) return;
  text.mask.insert(0, stage.prefix.size(), text.mask.front());
  text.text.insert(0, stage.prefix);
}

void Normalizer::Run(const Replace& stage, MaskedText& text) {
  size_t at = text.text.find(stage.from);
  if (at == std::string::npos) return;
  MaskedText out;
  out.text.reserve(text.text.size() * 2);
  size_t done = 0;
  for (; at != std::string::npos; at = text.text.find(stage.from, done)) {
    out.text.append(text.text, done, at - done).append(stage.to);
    out.mask.append(text.mask, done, at - done);
    const bool control = text.MayBeControl(at, at + stage.from.size());
    out.mask.append(stage.to.size(), control ? MaskedText::kParseByte : MaskedText::kTextByte);
    done = at + stage.from.size();
  }
  out.text.append(text.text, done);
  out.mask.append(text.mask, done);
  text = std::move(out);
}

void Normalizer::Apply(MaskedText& text) const {
  for (const Stage& stage : stages_) {
    std::visit([&text](const auto& s) { Run(s, text); }, stage);
  }
}

std::string Normalizer::Apply(const std::string_view text) const {
  MaskedText masked;
  masked.Append(text, ControlTokens::kStayText);
  Apply(masked);
  return masked.text;
}

}  // namespace invar::models
