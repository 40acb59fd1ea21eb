// See post_processor.h.
#include "models/text/post_processor.h"

#include "models/text/json_fields.h"

namespace invar::models {

StatusOr<PostProcessor> PostProcessor::Load(const nlohmann::json& section, const std::string& file) {
  PostProcessor processor;
  if (section.is_null()) return processor;
  if (Status s = processor.Add(section, file, "post_processor"); !s.ok()) return s;
  return processor;
}

Status PostProcessor::Add(const nlohmann::json& section, const std::string& file, const std::string& key) {
  const std::string type = TypeOf(section);
  if (type == "ByteLevel") return OkStatus();
  if (type == "TemplateProcessing") return AddTemplate(section, file, key);
  const nlohmann::json& members = Member(section, "processors");
  if (type == "Sequence" && members.is_array()) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (Status s = Add(members[i], file, key + ".processors[" + std::to_string(i) + "]"); !s.ok()) return s;
    }
    return OkStatus();
  }
  return UnsupportedField(file, key, "ByteLevel, TemplateProcessing or Sequence", section);
}

Status PostProcessor::AddTemplate(const nlohmann::json& section, const std::string& file, const std::string& key) {
  const nlohmann::json& single = Member(section, "single");
  if (!single.is_array()) return UnsupportedField(file, key + ".single", "an array", single);
  std::vector<TokenId> before, after;
  bool seen_text = false;
  for (const nlohmann::json& part : single) {
    if (Member(Member(part, "Sequence"), "id") == "A" && !seen_text) {
      seen_text = true;
      continue;
    }
    const nlohmann::json& name = Member(Member(part, "SpecialToken"), "id");
    const nlohmann::json& ids =
        name.is_string() ? Member(Member(Member(section, "special_tokens"), name.get<std::string>()), "ids") : name;
    if (!ids.is_array())
      return UnsupportedField(file, key + ".single", "one sequence A and known special tokens", part);
    for (const nlohmann::json& id : ids) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
        return UnsupportedField(file, key + ".special_tokens", "token ids", id);
      }
      (seen_text ? after : before).emplace_back(id.get<int32_t>());
    }
  }
  if (!seen_text) return UnsupportedField(file, key + ".single", "sequence A", single);
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
  return OkStatus();
}

}  // namespace invar::models
