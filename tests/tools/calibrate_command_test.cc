// `invar calibrate` and `invar inspect FILE.scd` as their users run them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/tiny_model.h"
#include "tests/tools/ran_command.h"

namespace invar::tools {
namespace {

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string Calibrate(const std::string& consumer, const std::string& more) {
  return "calibrate --producer " + testing::AssetFolder("tiny-hybrid") + " --consumer " + consumer +
         " --text " INVAR_SOURCE_DIR "/LICENSE --windows 4 --choose-windows 1 --judge-windows 2 --suffix-tokens 16 " +
         "--features 16 --tails 0,16 --threads 1 " + more;
}

TEST(Calibrate, WritesAProfileAndTheKeysScriptsRead) {
  const testing::TemporaryFolder folder;
  const std::string out = folder.path() + "/pair.scd";
  const std::string more = "--rank-k 16 --rank-v 24 --patch-layers 1 --out " + out + " --json " + folder.path() +
                           "/out.json --plot " + folder.path() + "/out.svg";
  const Ran ran = RunInvar(Calibrate(testing::AssetFolder("tiny-hybrid-ft"), more));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_NE(ran.output.find("\nraw "), std::string::npos) << ran.output;
  const nlohmann::json json = nlohmann::json::parse(Read(folder.path() + "/out.json"));
  for (const char* key :
       {"payload_bytes_per_token", "raw_bytes_per_token", "recompute_share", "kl", "kl_raw_reuse", "top1_agreement"})
    EXPECT_TRUE(json[key].is_number()) << key;
  EXPECT_EQ(json["raw_bytes_per_token"], 626.0) << "2 x 256 bytes of KV, and 6 states of 19,456 bytes over 1,024";
  ASSERT_EQ(json["layers"].size(), 8U);
  int patched = 0;
  for (const nlohmann::json& layer : json["layers"]) {
    EXPECT_TRUE(layer["mode"].is_string() && layer["rank"].is_number() && layer["error"].is_number()) << layer;
    patched += layer["mode"] == "patch" ? 1 : 0;
  }
  EXPECT_LE(patched, 1);
  for (const nlohmann::json& point : json["points"]) {
    if (point["name"] != "reuse-kv") continue;
    EXPECT_EQ(point["layers"][3]["rank_k"], 16);
    EXPECT_EQ(point["layers"][3]["rank_v"], 24);
  }
  EXPECT_FALSE(std::filesystem::exists(out + ".progress")) << "what it kept for a restart is gone";
  const std::string picture = Read(folder.path() + "/out.svg");
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));

  const Ran words = RunInvar("inspect " + out);
  EXPECT_EQ(words.exit_code, 0) << words.output;
  EXPECT_NE(words.output.find("SCD profile, version 1"), std::string::npos) << words.output;
  EXPECT_NE(words.output.find(json["consumer"].get<std::string>()), std::string::npos) << words.output;
  EXPECT_NE(words.output.find("layer  3: reuse_kv 16+24 bf16"), std::string::npos) << words.output;

  std::string damaged = Read(out);
  damaged[damaged.size() / 2] ^= 1;
  std::ofstream(out) << damaged;
  const Ran refused = RunInvar("inspect " + out);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.output.find(out + ": checksum: wanted "), std::string::npos) << refused.output;
}

TEST(Calibrate, SaysWhatIsNoPairAndWhatIsTooShort) {
  const testing::TemporaryFolder folder;
  const std::string out = "--out " + folder.path() + "/x.scd";
  const Ran other = RunInvar(Calibrate(testing::GoldenFolder("qwen3_5"), out));
  EXPECT_EQ(other.exit_code, 1);
  const Ran shorter = RunInvar(Calibrate(testing::AssetFolder("tiny-hybrid-ft"), "--prefix-tokens 2000 " + out));
  EXPECT_EQ(shorter.exit_code, 1);
  EXPECT_NE(shorter.output.find("--text: "), std::string::npos) << shorter.output;
  const Ran nowhere =
      RunInvar(Calibrate(testing::AssetFolder("tiny-hybrid-ft"), "--out " + folder.path() + "/no/x.scd"));
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_NE(nowhere.output.find("/no/x.scd"), std::string::npos) << nowhere.output;
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/x.scd"));
}

}  // namespace
}  // namespace invar::tools
