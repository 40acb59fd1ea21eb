// `invar plan` as its users run it: the keys scripts read, the numbers, the picture, and what it says to wrong input.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/tools/ran_command.h"

namespace invar::tools {
namespace {

Ran RunPlanCommand(const std::string& arguments) { return RunInvar("plan " + arguments); }

class PlanCommand : public testing::Test {
 protected:
  std::string PathOf(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(PathOf(name)) << text;
    return PathOf(name);
  }
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("plan-") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

 private:
  std::filesystem::path folder_;
};

TEST_F(PlanCommand, GivesPositionsAndMeanRecomputedTokens) {
  const std::string depths = Write("depths", "10\n30\n\n30\r\n90\n250\n");
  const Ran ran = RunPlanCommand("--depths " + depths + " --length 100 --places 2 --json");
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  const auto json = nlohmann::json::parse(ran.output);
  EXPECT_EQ(json["policy"], "optimal-dp");
  EXPECT_EQ(json["positions"], (std::vector<int>{30, 90}));
  EXPECT_DOUBLE_EQ(json["expected_recompute_tokens"], (10.0 + 0 + 0 + 0 + 10) / 5);
  bool saw_balanced = false;
  for (const auto& other : json["alternatives"]) {
    if (other["policy"] != "balanced") continue;
    saw_balanced = true;
    EXPECT_EQ(other["positions"], (std::vector<int>{33, 66}));
    EXPECT_DOUBLE_EQ(other["expected_recompute_tokens"], (10.0 + 30 + 30 + 24 + 34) / 5);
  }
  EXPECT_TRUE(saw_balanced);
}

TEST_F(PlanCommand, ShowsAnotherPolicyFirst) {
  const std::string depths = Write("depths", "50\n");
  const Ran ran = RunPlanCommand("--depths " + depths + " --length 100 --places 4 --policy block --json");
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_EQ(nlohmann::json::parse(ran.output)["positions"], (std::vector<int>{25, 50, 75, 100}));
}

TEST_F(PlanCommand, DrawsAWorkloadTwiceAlikeAndPlansIt) {
  const std::string draw = "--generate quality --length 8192 --count 5000 --seed 3 --out ";
  ASSERT_EQ(RunPlanCommand(draw + PathOf("a")).exit_code, 0);
  ASSERT_EQ(RunPlanCommand(draw + PathOf("b")).exit_code, 0);
  const auto text = [&](const std::string& name) {
    std::ostringstream out;
    out << std::ifstream(PathOf(name)).rdbuf();
    return out.str();
  };
  EXPECT_EQ(text("a"), text("b"));
  const Ran read = RunPlanCommand("--depths " + PathOf("a") + " --length 8192 --places 4 --json");
  const Ran drawn = RunPlanCommand("--generate quality --length 8192 --count 5000 --seed 3 --places 4 --json");
  EXPECT_EQ(read.output, drawn.output);
}

TEST_F(PlanCommand, DrawsAPicture) {
  const Ran ran = RunPlanCommand("--generate narrative --length 8192 --places 8 --plot " + PathOf("plan.svg"));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  std::ostringstream svg;
  svg << std::ifstream(PathOf("plan.svg")).rdbuf();
  EXPECT_TRUE(svg.str().starts_with("<svg "));
  EXPECT_TRUE(svg.str().ends_with("</svg>\n"));
  for (const char* const word : {"optimal-dp", "logarithmic-end", "8192", "tokens"}) {
    EXPECT_NE(svg.str().find(word), std::string::npos) << word;
  }
}

TEST_F(PlanCommand, SaysWhatIsWrong) {
  const auto expect = [](const std::string& arguments, const int code, const std::string& words) {
    const Ran ran = RunPlanCommand(arguments);
    EXPECT_EQ(ran.exit_code, code) << arguments << ran.output;
    EXPECT_NE(ran.output.find(words), std::string::npos) << arguments << ran.output;
  };
  const std::string good = Write("good", "5\n");
  expect("--depths " + PathOf("none") + " --length 10 --places 1", 1, "cannot read");
  expect("--depths " + Write("bad", "5\nsix\n") + " --length 10 --places 1", 1, "bad:2: wanted one depth in tokens");
  expect("--depths " + Write("negative", "-5\n") + " --length 10 --places 1", 1, "negative:1");
  expect("--depths " + Write("empty", "\n") + " --length 10 --places 1", 1, "holds no depths");
  expect("--length 10 --places 1", 2, "--depths");
  expect("--depths " + good + " --length 10", 2, "--slots");
  expect("--depths " + good + " --length 0 --places 1", 2, "--length");
  expect("--depths " + good + " --length 10 --places 1 --policy even", 2, "--policy");
  expect("--depths " + good + " --length 10 --places 1 --plot /nowhere/at/all.svg", 1, "cannot write");
}

}  // namespace
}  // namespace invar::tools
