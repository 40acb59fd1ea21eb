// Reading one field of a JSON section with a type, a default and an error that names file and key.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace invar::models {

inline Status UnsupportedField(const std::string& file, const std::string& key, const std::string& wanted,
                               const nlohmann::json& found) {
  std::string dump = found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (dump.size() > 200) dump = dump.substr(0, 200) + "...";
  return InvalidArgument(file + ": " + key + ": wanted " + wanted + ", found " + dump, key);
}

// The member `name` of `section`, or null where there is none or `section` is no object.
inline const nlohmann::json& Member(const nlohmann::json& section, const std::string& name) {
  static const nlohmann::json kNull;
  if (!section.is_object()) return kNull;
  const auto it = section.find(name);
  return it == section.end() ? kNull : *it;
}

// Booleans may be absent or null, which is `fallback`.
inline StatusOr<bool> BoolMember(const nlohmann::json& section, const std::string& name, const bool fallback,
                                 const std::string& file, const std::string& key) {
  const nlohmann::json& value = Member(section, name);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) return UnsupportedField(file, key + "." + name, "true or false", value);
  return value.get<bool>();
}

inline StatusOr<std::string> StringMember(const nlohmann::json& section, const std::string& name,
                                          const std::string& file, const std::string& key) {
  const nlohmann::json& value = Member(section, name);
  if (!value.is_string()) return UnsupportedField(file, key + "." + name, "a string", value);
  return value.get<std::string>();
}

// The "type" of a section, or an empty string, which no kind has.
inline std::string TypeOf(const nlohmann::json& section) {
  const nlohmann::json& type = Member(section, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

}  // namespace invar::models
