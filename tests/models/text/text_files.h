// Golden data and throw-away model folders for the tests of text/.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "models/text.h"

namespace invar::models {

inline std::string GoldenFolder() { return std::string(INVAR_SOURCE_DIR) + "/tests/golden/text"; }
inline std::string TokenizerFolder(const std::string& name) { return GoldenFolder() + "/tokenizers/" + name; }

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// A folder that is removed with its files at the end of the test.
class TempFolder {
 public:
  TempFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("invar_text_" + std::to_string(getpid()) + "_" + std::to_string(++count))) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const TempFolder& Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return *this;
  }
  std::string path() const { return path_.string(); }

 private:
  inline static int count = 0;
  std::filesystem::path path_;
};

inline StatusOr<std::unique_ptr<ChatTemplate>> TemplateOf(const std::string& source) {
  const TempFolder folder;
  folder.Write("chat_template.jinja", source);
  folder.Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  return LoadChatTemplate(folder.path());
}

inline StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const nlohmann::json& json) {
  const TempFolder folder;
  folder.Write("tokenizer.json", json.dump());
  return LoadTokenizer(folder.path());
}

inline std::vector<int32_t> Raw(const std::vector<TokenId>& ids) {
  std::vector<int32_t> raw;
  for (const TokenId id : ids) raw.push_back(id.value());
  return raw;
}

}  // namespace invar::models
