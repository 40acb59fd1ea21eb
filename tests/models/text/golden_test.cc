// Tokenizers and chat templates against what the reference libraries gave (tools/oracle/text/make_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/models/text/chat_json.h"
#include "tests/models/text/text_files.h"

namespace invar::models {
namespace {

class GoldenTokenizer : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer = LoadTokenizer(TokenizerFolder(GetParam()));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    tokenizer_ = *std::move(tokenizer);
  }

  std::vector<int32_t> Ids(const std::string& text, const bool parse, const bool add_special) const {
    const auto ids =
        tokenizer_->Encode(text, parse ? ControlTokens::kParse : ControlTokens::kStayText, add_special, {});
    EXPECT_TRUE(ids.ok()) << ids.status().ToString();
    return ids.ok() ? Raw(*ids) : std::vector<int32_t>();
  }
  std::string Text(const std::vector<int32_t>& raw) const {
    std::vector<TokenId> ids;
    for (const int32_t id : raw) ids.emplace_back(id);
    return tokenizer_->Decode(ids, false);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(GoldenTokenizer, GivesTheReferencesIdsAndText) {
  std::ifstream lines(TokenizerFolder(GetParam()) + "/cases.jsonl");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto entry = nlohmann::json::parse(line);
    const std::string text = entry[0];
    const bool parse = entry[1];
    const std::vector<int32_t> ids = entry[2], with_special = entry[3];
    ASSERT_EQ(Ids(text, parse, false), ids) << entry[0];
    if (parse) {
      ASSERT_EQ(Ids(text, true, true), with_special) << entry[0];
    }
    ASSERT_EQ(Text(ids), entry[4].get<std::string>()) << entry[0];
  }
  EXPECT_EQ(count, 1000);
}

TEST_P(GoldenTokenizer, StreamsTheSameTextWholeCharacterByWholeCharacter) {
  std::ifstream lines(TokenizerFolder(GetParam()) + "/cases.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    Detokenizer detokenizer(*tokenizer_, false);
    std::string streamed;
    for (const int32_t id : entry[2]) {
      const std::string delta = detokenizer.Append(TokenId(id));
      // dump() in strict mode throws on anything that is not whole UTF-8.
      ASSERT_NO_THROW(static_cast<void>(nlohmann::json(delta).dump())) << entry[0];
      streamed += delta;
    }
    streamed += detokenizer.Finish();
    ASSERT_EQ(streamed, entry[4].get<std::string>()) << entry[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTokenizer,
                         testing::Values("qwen2", "qwen3_5", "llama3", "gpt2", "sentencepiece", "flags"),
                         [](const auto& param) { return std::string(param.param); });

class OracleCases : public GoldenTokenizer {};

TEST_P(OracleCases, TokenizerCasesAgree) {
  const auto cases = nlohmann::json::parse(ReadText(TokenizerFolder(GetParam()) + "/tokenizer_cases.json"));
  for (const auto& entry : cases) {
    const std::string text = entry["text"];
    const std::vector<int32_t> ids = entry["ids"], with_special = entry["ids_with_special"];
    EXPECT_EQ(Ids(text, true, false), ids) << entry["text"];
    EXPECT_EQ(Ids(text, true, true), with_special) << entry["text"];
    EXPECT_EQ(Text(ids), entry["decoded"].get<std::string>());
  }
  EXPECT_GE(cases.size(), 25u);
}

TEST_P(OracleCases, ChatCasesAgree) {
  const auto chat_template = LoadChatTemplate(TokenizerFolder(GetParam()));
  ASSERT_TRUE(chat_template.ok()) << chat_template.status().ToString();
  ASSERT_NE(*chat_template, nullptr);
  for (const auto& entry : nlohmann::ordered_json::parse(ReadText(TokenizerFolder(GetParam()) + "/chat_cases.json"))) {
    nlohmann::ordered_json request = {{"messages", entry["messages"]}, {"options", nlohmann::ordered_json::object()}};
    for (const auto& [key, value] : entry["kwargs"].items()) {
      (key == "tools" || key == "add_generation_prompt" ? request[key] : request["options"][key]) = value;
    }
    const auto pieces = (*chat_template)->Render(RequestFromJson(request), kTestLimits);
    ASSERT_TRUE(pieces.ok()) << pieces.status().ToString();
    EXPECT_EQ(JoinPieces(*pieces), entry["text"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, OracleCases, testing::Values("qwen2", "qwen3_5", "llama3", "gpt2", "sentencepiece"),
                         [](const auto& param) { return std::string(param.param); });

TEST(GoldenTemplates, RenderOrRefuseAsJinjaDoes) {
  const auto cases = nlohmann::ordered_json::parse(ReadText(GoldenFolder() + "/templates.json"));
  EXPECT_GE(cases.size(), 240u);
  for (const auto& entry : cases) {
    const auto chat_template = TemplateOf(entry["template"].get<std::string>());
    if (!chat_template.ok()) {
      EXPECT_TRUE(entry.contains("error")) << entry.dump() << chat_template.status().ToString();
      continue;
    }
    const auto pieces = (*chat_template)->Render(RequestFromJson(entry["request"]), kTestLimits);
    if (!pieces.ok()) {
      EXPECT_TRUE(entry.contains("error")) << entry.dump() << pieces.status().ToString();
      continue;
    }
    EXPECT_EQ(JoinPieces(*pieces), entry.value("text", "(refused)")) << entry["template"];
  }
}

}  // namespace
}  // namespace invar::models
