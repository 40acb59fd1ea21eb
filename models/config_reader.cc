// See config_reader.h. Integers written as floats (1.0) are refused: no real file does so, and a rounding rule would be
// ours.
#include "models/config_reader.h"

#include <fmt/format.h>

#include <cmath>

namespace invar::models {
namespace {
constexpr size_t kFoundCharactersMax = 120;
}  // namespace

ConfigReader::ConfigReader(const nlohmann::json& json, std::string path, std::string prefix,
                           std::shared_ptr<Status> status)
    : json_(&json),
      path_(std::move(path)),
      prefix_(std::move(prefix)),
      status_(status != nullptr ? std::move(status) : std::make_shared<Status>()) {}

const nlohmann::json* ConfigReader::Find(const std::string& key) const {
  if (!json_->is_object()) return nullptr;
  const auto it = json_->find(key);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::Has(const std::string& key) const { return Find(key) != nullptr; }

std::string ConfigReader::Found(const std::string& key) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return "nothing";
  std::string text = value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kFoundCharactersMax) text = text.substr(0, kFoundCharactersMax) + "...";
  return text;
}

void ConfigReader::Fail(const std::string& key, const std::string& wanted, const std::string& found) {
  if (!status_->ok()) return;
  *status_ =
      InvalidArgument(fmt::format("{}: {}{}: wanted {}, found {}", path_, prefix_, key, wanted, found), prefix_ + key);
}

std::optional<ConfigReader> ConfigReader::Section(const std::string& key) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) {
    Fail(key, "an object", Found(key));
    return std::nullopt;
  }
  return ConfigReader(*value, path_, prefix_ + key + ".", status_);
}

int32_t ConfigReader::Int(const std::string& key, const int32_t min) {
  const nlohmann::json* value = Find(key);
  if (value != nullptr && value->is_number_integer()) {
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= INT32_MAX : value->get<int64_t>() >= min;
    if (fits && value->get<int64_t>() >= min) return static_cast<int32_t>(value->get<int64_t>());
  }
  Fail(key, fmt::format("an integer in [{}, 2^31)", min), Found(key));
  return std::max(min, 1);
}

int32_t ConfigReader::Int(const std::string& key, const int32_t min, const int32_t fallback) {
  return Has(key) ? Int(key, min) : fallback;
}

int32_t ConfigReader::Size(const std::string& key) {
  const int32_t size = Int(key);
  if (size <= kSizeMax) return size;
  Fail(key, fmt::format("at most {}", kSizeMax), Found(key));
  return 1;
}

int32_t ConfigReader::Size(const std::string& key, const int32_t fallback) { return Has(key) ? Size(key) : fallback; }

void ConfigReader::CheckProduct(const std::string& key, const int32_t value, const std::string& other,
                                const int32_t other_value) {
  if (int64_t{value} * other_value <= kSizeMax) return;
  Fail(key, fmt::format("at most {} with {} {}", kSizeMax / other_value, other, other_value), fmt::format("{}", value));
}

double ConfigReader::Positive(const std::string& key) {
  const nlohmann::json* value = Find(key);
  if (value != nullptr && value->is_number()) {
    const double number = value->get<double>();
    if (std::isfinite(number) && number > 0) return number;
  }
  Fail(key, "a number > 0", Found(key));
  return 1.0;
}

double ConfigReader::Positive(const std::string& key, const double fallback) {
  return Has(key) ? Positive(key) : fallback;
}

bool ConfigReader::Bool(const std::string& key, const bool fallback) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) Fail(key, "true or false", Found(key));
  return value->is_boolean() ? value->get<bool>() : fallback;
}

std::string ConfigReader::String(const std::string& key) {
  const nlohmann::json* value = Find(key);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  Fail(key, "a string", Found(key));
  return {};
}

std::string ConfigReader::String(const std::string& key, const std::string& fallback) {
  return Has(key) ? String(key) : fallback;
}

std::vector<std::string> ConfigReader::Strings(const std::string& key) {
  std::vector<std::string> strings;
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return strings;
  bool good = value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    good = (*value)[i].is_string();
    if (good) strings.push_back((*value)[i].get<std::string>());
  }
  if (!good) Fail(key, "a list of strings", Found(key));
  return strings;
}

std::vector<int32_t> ConfigReader::Ints(const std::string& key) {
  std::vector<int32_t> numbers;
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return numbers;
  bool good = value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    const nlohmann::json& number = (*value)[i];
    good = number.is_number_unsigned() && number.get<uint64_t>() <= INT32_MAX;
    if (good) numbers.push_back(number.get<int32_t>());
  }
  if (!good) Fail(key, "a list of integers >= 0", Found(key));
  return numbers;
}

void ConfigReader::Expect(const std::string& key, const nlohmann::json& only) {
  const nlohmann::json* value = Find(key);
  if (value != nullptr && *value != only) Fail(key, only.dump(), Found(key));
}

void ConfigReader::Refuse(const std::string& key, const std::string& reason) {
  if (Has(key)) Fail(key, "nothing (" + reason + ")", Found(key));
}

}  // namespace invar::models
