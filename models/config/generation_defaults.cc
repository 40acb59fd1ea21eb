// generation_config.json, and the stop tokens of every file that may name one: releases differ in which file is right,
// and a missing stop token lets a chat run on for ever, so the union is taken.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "models/config/config_reader.h"
#include "models/model.h"
#include "models/text.h"
#include "models/text/strict_json.h"

namespace invar::models {
namespace {

constexpr int64_t kConfigBytesMax = 16 << 20;

// The file's JSON, or an empty object where there is no file.
StatusOr<nlohmann::json> ReadOptional(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return nlohmann::json::object();
  StatusOr<std::string> text = ReadFile(path, kConfigBytesMax);
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

// Id of the token spelt `content`, from tokenizer_config.json's own table or from the tokenizer.
std::optional<TokenId> FindToken(const nlohmann::json& tokenizer_config, const Tokenizer* const tokenizer,
                                 const std::string& content) {
  if (const auto table = tokenizer_config.find("added_tokens_decoder");
      table != tokenizer_config.end() && table->is_object()) {
    for (const auto& [id, token] : table->items()) {
      if (token.is_object() && token.value("content", nlohmann::json()) == content && !id.empty() && id.size() < 10 &&
          id.find_first_not_of("0123456789") == std::string::npos) {
        return TokenId(std::stoi(id));
      }
    }
  }
  return tokenizer != nullptr ? tokenizer->FindToken(content) : std::nullopt;
}

Status AddTokenizerEos(const std::string& folder, const Tokenizer* const tokenizer, std::vector<TokenId>& eos) {
  StatusOr<nlohmann::json> json = ReadOptional(folder + "/tokenizer_config.json");
  if (!json.ok()) return json.status();
  const auto token = json->find("eos_token");
  if (token == json->end() || token->is_null()) return OkStatus();
  const nlohmann::json content = token->is_object() ? token->value("content", nlohmann::json()) : *token;
  if (!content.is_string()) {
    return InvalidArgument(folder + "/tokenizer_config.json: eos_token: wanted a string, found " + token->dump(),
                           "eos_token");
  }
  if (const auto id = FindToken(*json, tokenizer, content.get<std::string>())) eos.push_back(*id);
  return OkStatus();
}

// Settings that change answers elsewhere and that no request takes from this file here. What is left at the value where
// it does nothing is not worth a word.
void LogPassedOver(const nlohmann::json& json, const std::string& path) {
  struct Setting {
    const char* key;
    const char* neutral;  // JSON.
  };
  constexpr Setting kSettings[] = {{"max_new_tokens", "null"},
                                   {"max_length", "20"},
                                   {"min_new_tokens", "0"},
                                   {"min_length", "0"},
                                   {"stop_strings", "null"},
                                   {"suppress_tokens", "null"},
                                   {"begin_suppress_tokens", "null"},
                                   {"bad_words_ids", "null"},
                                   {"force_words_ids", "null"},
                                   {"forced_bos_token_id", "null"},
                                   {"forced_eos_token_id", "null"},
                                   {"sequence_bias", "null"},
                                   {"no_repeat_ngram_size", "0"},
                                   {"encoder_no_repeat_ngram_size", "0"},
                                   {"num_beams", "1"},
                                   {"num_beam_groups", "1"},
                                   {"diversity_penalty", "0.0"},
                                   {"length_penalty", "1.0"},
                                   {"typical_p", "1.0"},
                                   {"epsilon_cutoff", "0.0"},
                                   {"eta_cutoff", "0.0"},
                                   {"guidance_scale", "null"},
                                   {"penalty_alpha", "null"}};
  std::vector<std::string> keys;
  for (const Setting& setting : kSettings) {
    const auto found = json.find(setting.key);
    if (found == json.end() || found->is_null() || *found == nlohmann::json::parse(setting.neutral)) continue;
    keys.emplace_back(setting.key);
  }
  if (keys.empty()) return;
  Logger("models")->warn("{}: {}: not taken as a default here; requests say what they want", path,
                         fmt::join(keys, ", "));
}

}  // namespace

StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& folder, const Tokenizer* const tokenizer) {
  GenerationDefaults defaults;
  const std::string path = folder + "/generation_config.json";
  StatusOr<nlohmann::json> json = ReadOptional(path);
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
  LogPassedOver(*json, path);

  const std::string model_path = folder + "/config.json";
  StatusOr<nlohmann::json> model_json = ReadOptional(model_path);
  if (!model_json.ok()) return model_json.status();
  ConfigReader model_config(*model_json, model_path);
  AddEos(model_config, defaults.eos);
  if (std::optional<ConfigReader> text = model_config.Section("text_config")) AddEos(*text, defaults.eos);
  if (!model_config.status().ok()) return model_config.status();

  if (Status s = AddTokenizerEos(folder, tokenizer, defaults.eos); !s.ok()) return s;
  std::sort(defaults.eos.begin(), defaults.eos.end());
  defaults.eos.erase(std::unique(defaults.eos.begin(), defaults.eos.end()), defaults.eos.end());
  return defaults;
}

}  // namespace invar::models
