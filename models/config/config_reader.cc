// See config_reader.h. Integers written as floats (1.0) are refused: no real file does so, and a rounding rule would be
// ours.
#include "models/config/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace invar::models {
namespace {

constexpr size_t kFoundCharactersMax = 120;

// Where null says as much as absence, as the transformers library (5.24) has it: it types all other fields and refuses
// null for them, while it types these as optional, reads them with `or`, or passes them over.
constexpr std::array<std::string_view, 26> kNullIsAbsence = {
    "architectures", "text_config", "dtype", "torch_dtype", "num_key_value_heads", "head_dim", "layer_types",
    "mlp_only_layers", "mtp_num_hidden_layers", "num_nextn_predict_layers", "mtp_use_dedicated_embeddings",
    // Of rope.
    "rope_parameters", "rope_scaling", "attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow",
    // Of generation_config.json: not set.
    "do_sample", "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "eos_token_id",
    // Of windows that are not used; where null means none, whoever reads it asks for IsNull.
    "sliding_window"};

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
  if (it == json_->end()) return nullptr;
  return it->is_null() && std::ranges::find(kNullIsAbsence, key) != kNullIsAbsence.end() ? nullptr : &*it;
}

bool ConfigReader::Has(const std::string& key) const { return Find(key) != nullptr; }

bool ConfigReader::IsNull(const std::string& key) const {
  return json_->is_object() && json_->contains(key) && (*json_)[key].is_null();
}

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
  if (value != nullptr && !value->is_null() && *value != only) Fail(key, only.dump(), Found(key));
}

void ConfigReader::Refuse(const std::string& key, const std::string& reason) {
  if (Has(key) && !IsNull(key)) Fail(key, "nothing (" + reason + ")", Found(key));
}

}  // namespace invar::models
