// `invar stagger-sim` as its users run it: the keys scripts read and what it says to a wrong profile.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/ran_command.h"

namespace invar::tools {
namespace {

constexpr char kProfile[] =
    "hbm_gb: 80\nhbm_tbps: 3.35\nlink_gbps: 55\ntflops: 990\nweights_gb: 47\nkv_bytes_per_token: 163840\n"
    "state_bytes: 0\ncontext_tokens: 32768\ncompression: 8\nacceptance: 0.99\nprefix_group: 1\nwire_factor: 1\n";

Ran RunStaggerSim(const std::string& profile, const std::string& arguments = "") {
  const std::string path = (std::filesystem::temp_directory_path() / "stagger_profile_of_test.yaml").string();
  std::ofstream(path) << profile;
  return RunInvar("stagger-sim --profile " + path + " " + arguments);
}

TEST(StaggerSim, PrintsTheKeysScriptsRead) {
  const Ran ran = RunStaggerSim(kProfile, "--json");
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  const nlohmann::json out = nlohmann::json::parse(ran.output);
  EXPECT_EQ(out["full"]["residents"], 4);
  EXPECT_EQ(out["chosen"]["mode"], "staggered");
  EXPECT_GT(out["chosen"]["draft_tokens"], 16);
  EXPECT_GT(out["staggered"]["tokens_per_s"], 3.5 * out["full"]["tokens_per_s"].get<double>());
  EXPECT_GT(out["staggered"]["tokens_per_s"], out["synchronous"]["tokens_per_s"]);
  EXPECT_GT(out["bound_tokens_per_s"], out["staggered"]["tokens_per_s"]);
  EXPECT_EQ(RunStaggerSim(kProfile, "--json").output, ran.output) << "a seed gives one answer";
}

TEST(StaggerSim, SaysInWordsThatItFallsBack) {
  std::string profile = kProfile;
  profile.replace(profile.find("0.99"), 4, "0.50");
  const Ran ran = RunStaggerSim(profile);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_NE(ran.output.find("chosen without knowing the acceptance: plain"), std::string::npos) << ran.output;
}

TEST(StaggerSim, NamesWhatIsWrong) {
  const auto error = [](const std::string& from, const std::string& to) {
    std::string profile = kProfile;
    profile.replace(profile.find(from), from.size(), to);
    const Ran ran = RunStaggerSim(profile);
    EXPECT_EQ(ran.exit_code, 1) << ran.output;
    return ran.output;
  };
  EXPECT_NE(error("hbm_gb: 80", "hbm: 80").find(":1: hbm: unknown key; known: hbm_gb"), std::string::npos);
  EXPECT_NE(
      error("acceptance: 0.99", "acceptance: 1.5").find(":10: acceptance: wanted a number from 0 to 1, found 1.5"),
      std::string::npos);
  EXPECT_NE(error("tflops: 990\n", "").find("tflops: missing"), std::string::npos);
  EXPECT_NE(error("tflops: 990", "tflops: nan").find("tflops: wanted a number"), std::string::npos);
  EXPECT_NE(error("tflops: 990", "tflops: 990\ntflops: 2").find(":5: tflops: given twice"), std::string::npos);
  EXPECT_NE(error("weights_gb: 47", "weights_gb: 79").find("leave no room for KV"), std::string::npos);
  EXPECT_NE(error("hbm_gb: 80", "hbm_gb: [80").find("stagger_profile_of_test.yaml:"), std::string::npos);
}

TEST(StaggerSim, RefusesWrongOptionsAsUsage) {
  EXPECT_EQ(RunStaggerSim(kProfile, "--draft-tokens 0").exit_code, 2);
  EXPECT_EQ(RunStaggerSim(kProfile, "--wrong").exit_code, 2);
}

}  // namespace
}  // namespace invar::tools
