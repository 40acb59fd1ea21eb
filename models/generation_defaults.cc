// generation_config.json, and the stop tokens of every file that may name one: releases differ in which file is right,
// and a missing stop token lets a chat run on for ever, so the union is taken.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "models/config_reader.h"
#include "models/model.h"
#include "models/text/strict_json.h"

namespace invar::models {
namespace {

constexpr int64_t kConfigBytesMax = 16 << 20;
constexpr int64_t kTokenizerBytesMax = 256 << 20;

// The file's JSON, or an empty object where there is no file.
StatusOr<nlohmann::json> ReadOptional(const std::string& path, const int64_t bytes_max) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return nlohmann::json::object();
  StatusOr<std::string> text = ReadFileBytes(path, bytes_max);
  if (!text.ok()) return text.status();
  StatusOr<nlohmann::json> json = ParseStrictJson(*text, path);
  if (!json.ok()) return json.status();
  if (!json->is_object()) return InvalidArgument(path + ": wanted a JSON object, found " + json->type_name());
  return json;
}

// eos_token_id: an id or a list of ids.
void AddEos(ConfigReader& config, std::vector<TokenId>& eos) {
  if (!config.Has("eos_token_id")) return;
  if (config.json()["eos_token_id"].is_array()) {
    for (const int32_t id : config.Ints("eos_token_id")) eos.emplace_back(id);
  } else {
    eos.emplace_back(config.Int("eos_token_id", 0));
  }
}

float Share(ConfigReader& config, const std::string& key, const float fallback) {
  if (!config.Has(key)) return fallback;
  const nlohmann::json& value = config.json()[key];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!std::isfinite(number) || number < 0 || number > 1) config.Fail(key, "a number in [0, 1]", config.Found(key));
  return static_cast<float>(number);
}

// Id of the token spelt `content`, from tokenizer_config.json's own table or from tokenizer.json.
StatusOr<std::optional<int32_t>> FindToken(const std::string& folder, const nlohmann::json& tokenizer_config,
                                           const std::string& content) {
  if (const auto table = tokenizer_config.find("added_tokens_decoder");
      table != tokenizer_config.end() && table->is_object()) {
    for (const auto& [id, token] : table->items()) {
      if (token.is_object() && token.value("content", nlohmann::json()) == content && !id.empty() && id.size() < 10 &&
          id.find_first_not_of("0123456789") == std::string::npos) {
        return std::optional<int32_t>(std::stoi(id));
      }
    }
  }
  StatusOr<nlohmann::json> tokenizer = ReadOptional(folder + "/tokenizer.json", kTokenizerBytesMax);
  if (!tokenizer.ok()) return tokenizer.status();
  const nlohmann::json added = tokenizer->value("added_tokens", nlohmann::json::array());
  for (const nlohmann::json& token : added) {
    if (token.is_object() && token.value("content", nlohmann::json()) == content && token["id"].is_number_unsigned()) {
      return std::optional<int32_t>(token["id"].get<int32_t>());
    }
  }
  const auto model = tokenizer->find("model");
  if (model != tokenizer->end() && model->is_object() && model->contains("vocab") && (*model)["vocab"].is_object()) {
    const auto entry = (*model)["vocab"].find(content);
    if (entry != (*model)["vocab"].end() && entry->is_number_unsigned())
      return std::optional<int32_t>(entry->get<int32_t>());
  }
  return std::optional<int32_t>();
}

Status AddTokenizerEos(const std::string& folder, std::vector<TokenId>& eos) {
  StatusOr<nlohmann::json> json = ReadOptional(folder + "/tokenizer_config.json", kConfigBytesMax);
  if (!json.ok()) return json.status();
  const auto token = json->find("eos_token");
  if (token == json->end() || token->is_null()) return OkStatus();
  const nlohmann::json content = token->is_object() ? token->value("content", nlohmann::json()) : *token;
  if (!content.is_string()) {
    return InvalidArgument(folder + "/tokenizer_config.json: eos_token: wanted a string, found " + token->dump(),
                           "eos_token");
  }
  StatusOr<std::optional<int32_t>> id = FindToken(folder, *json, content.get<std::string>());
  if (!id.ok()) return id.status();
  if (id->has_value()) eos.emplace_back(**id);
  return OkStatus();
}

}  // namespace

StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& folder) {
  GenerationDefaults defaults;
  const std::string path = folder + "/generation_config.json";
  StatusOr<nlohmann::json> json = ReadOptional(path, kConfigBytesMax);
  if (!json.ok()) return json.status();
  ConfigReader config(*json, path);
  defaults.do_sample = config.Bool("do_sample", false);
  if (config.Has("temperature") && (*json)["temperature"] == 0) {
    defaults.temperature = 0;  // Positive() would refuse it, but it plainly means greedy.
  } else {
    defaults.temperature = static_cast<float>(config.Positive("temperature", 1.0));
  }
  defaults.top_p = Share(config, "top_p", 1.0F);
  defaults.min_p = Share(config, "min_p", 0.0F);
  defaults.top_k = config.Int("top_k", 0, 0);
  defaults.repetition_penalty = static_cast<float>(config.Positive("repetition_penalty", 1.0));
  AddEos(config, defaults.eos);
  if (!config.status().ok()) return config.status();

  const std::string model_path = folder + "/config.json";
  StatusOr<nlohmann::json> model_json = ReadOptional(model_path, kConfigBytesMax);
  if (!model_json.ok()) return model_json.status();
  ConfigReader model_config(*model_json, model_path);
  AddEos(model_config, defaults.eos);
  if (std::optional<ConfigReader> text = model_config.Section("text_config")) AddEos(*text, defaults.eos);
  if (!model_config.status().ok()) return model_config.status();

  if (Status s = AddTokenizerEos(folder, defaults.eos); !s.ok()) return s;
  std::sort(defaults.eos.begin(), defaults.eos.end());
  defaults.eos.erase(std::unique(defaults.eos.begin(), defaults.eos.end()), defaults.eos.end());
  return defaults;
}

}  // namespace invar::models
