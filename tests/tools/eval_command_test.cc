// `invar eval` as its users run it: the keys scripts read, the picture, and what it says to wrong options.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/tiny_model.h"
#include "tests/tools/ran_command.h"

namespace invar::tools {
namespace {

Ran Eval(const std::string& arguments) {
  return RunInvar("eval --model " + testing::AssetFolder("tiny-hybrid") + " " + arguments);
}

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Eval, PrintsATableAndWritesTheKeysScriptsRead) {
  const testing::TemporaryFolder folder;
  const std::string text = folder.path() + "/text.txt";
  std::ofstream out(text);
  for (int i = 0; i < 120; ++i) out << "Line " << i << " of a text that goes on and on.\n";
  out.close();
  const std::string arguments =
      "--compressor noop --compressor streaming:recent=8 --tasks niah_single_3,key_value --budget 0.5 --samples 2 "
      "--context-tokens 200 --suffix-tokens 20 --draft-tokens 1,4 --path-tokens 12 --seed 3 --text " +
      text + " --json " + folder.path() + "/out.json --plot " + folder.path() + "/out.svg";
  const Ran ran = Eval(arguments);
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_NE(ran.output.find("\nfull "), std::string::npos) << ran.output;

  const std::string first = Read(folder.path() + "/out.json");
  nlohmann::json json = nlohmann::json::parse(first);
  EXPECT_EQ(json["seed"], 3);
  EXPECT_EQ(json["fingerprint"].get<std::string>().size(), 64U);
  EXPECT_FALSE(json["numerics"].get<std::string>().empty());
  EXPECT_EQ(json["date"].get<std::string>().size(), 20U) << json["date"];
  const nlohmann::json& rows = json["candidates"];
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0]["compressor"], "full");
  EXPECT_EQ(rows[2]["settings"], "streaming:sinks=4,recent=8,encoding=dense");
  EXPECT_EQ(rows[3]["compressor"], "random_drop");
  EXPECT_EQ(rows[0]["budget"], nullptr);
  EXPECT_EQ(rows[3]["budget"], 0.5);
  for (const char* key : {"tasks", "text", "drafts", "bytes_share"}) EXPECT_EQ(rows[1][key], rows[0][key]) << key;
  EXPECT_EQ(rows[0]["tasks"]["key_value"]["samples"], 2);
  EXPECT_EQ(rows[0]["text"]["tokens"], 40);
  EXPECT_EQ(rows[0]["drafts"][1]["tokens_a_round"], 5.0);
  EXPECT_NE(rows[2]["text"]["nll"], rows[0]["text"]["nll"]);

  const std::string picture = Read(folder.path() + "/out.svg");
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n")) << picture.substr(0, 80);
  EXPECT_NE(picture.find("streaming:recent=8 at 0.5"), std::string::npos);

  ASSERT_EQ(Eval(arguments).exit_code, 0);
  nlohmann::json second = nlohmann::json::parse(Read(folder.path() + "/out.json"));
  json.erase("date");
  second.erase("date");
  EXPECT_EQ(second, json) << "a seed gives one answer";
}

TEST(Eval, CountsRightAnswersAsTheyAreServed) {
  const testing::TemporaryFolder folder;
  const Ran ran = Eval(
      "--served --compressor streaming:recent=8 --compressor k8v4 --compressor h2o --tasks niah_single_3,counting "
      "--budget 0.25 --samples 2 --context-tokens 500 --draft-tokens 1,4 --json " +
      folder.path() + "/out.json");
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  const nlohmann::json json = nlohmann::json::parse(Read(folder.path() + "/out.json"));
  EXPECT_EQ(json["full"]["answers"], 4);
  EXPECT_EQ(json["full_in_company"]["answers"], 4);
  EXPECT_EQ(json["full_in_company"]["differing"], 0);
  const nlohmann::json& rows = json["rows"];
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[3]["compressor"], "random_drop");
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row["approximate"]["answers"], 4);
    EXPECT_EQ(row["lossless"].is_null(), row["compressor"] == "h2o") << "drafts are not shown queries";
    if (row["lossless"].is_null()) continue;
    EXPECT_EQ(row["lossless"]["answers"], 8) << "two lengths of drafts";
    EXPECT_EQ(row["lossless"]["differing"], 0);
    EXPECT_EQ(row["lossless"]["lost"], 0);
    EXPECT_GT(row["lossless"]["drafted_tokens"], 0);
  }
  EXPECT_GT(rows[0]["approximate"]["differing"], 0) << "it is seen where tokens differ";
}

TEST(Eval, NamesWhatIsWrong) {
  const auto says = [](const std::string& arguments, const std::string& words) {
    const Ran ran = Eval(arguments);
    EXPECT_EQ(ran.exit_code, 1) << ran.output;
    EXPECT_NE(ran.output.find(words), std::string::npos) << ran.output;
  };
  says("--compressor snapvk", "--compressor: there is no compressor \"snapvk\"; there are: noop random_drop");
  says("--compressor streaming:sink=2", "--compressor: ");
  says("--compressor noop --budget 1.5", "--budget: wanted shares of the full KV above 0 and at most 1, found 1.5");
  says("--compressor noop --budget 0", "found 0");
  says("--compressor noop --budget nan", "found nan");
  says("--served --compressor kvzip", "--compressor: kvzip goes by a second pass over the prompt");
  says("--compressor noop --tasks niah", "--tasks: there is no task \"niah\"; there are: niah_single_1");
  says("--compressor noop --context-tokens 5000", "--context-tokens: 5000, wanted at most the model's 4096");
  says("--compressor noop --context-tokens 4090", "--context-tokens: with question and answer, or a second pass, ");
  says("--compressor noop --context-tokens 20 --tasks cwe", "--context-tokens: task cwe needs ");
  says("--compressor noop --text /no/such/file", "--text: /no/such/file");
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/short.txt") << "Only a line.";
  says("--compressor noop --text " + folder.path() + "/short.txt", "short.txt has ");
  std::ofstream(folder.path() + "/bytes.bin") << "abc\xFFz";
  says("--compressor noop --text " + folder.path() + "/bytes.bin", "bytes.bin: byte 3 is no UTF-8");
  says("--compressor noop --json " + folder.path() +
           "/no/out.json --tasks key_value --context-tokens 60 --samples 1 "
           "--path-tokens 2 --draft-tokens 1",
       "/no/out.json");
}

TEST(Eval, RefusesWrongOptionsAsUsage) {
  EXPECT_EQ(Eval("").exit_code, 2) << "no compressor";
  EXPECT_EQ(Eval("--compressor noop --samples 0").exit_code, 2);
  EXPECT_EQ(RunInvar("eval --compressor noop").exit_code, 2) << "no model";
}

}  // namespace
}  // namespace invar::tools
