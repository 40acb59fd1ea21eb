// What the server does about a model that is not, or turns out not to be, what it should be.
#include "server/calls/served_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/tiny_model.h"

namespace invar::server {
namespace {

TEST(ServedModelDeathTest, DamagedWeightsEndTheProcessAtOnce) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(EndOnDamage(DataLoss("m.packed: block 3")), ::testing::ExitedWithCode(1), "m.packed: block 3");
}

TEST(LoadModelFolder, RefusesATokenizerWithIdsThatTheModelLacks) {
  namespace fs = std::filesystem;
  const testing::TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(std::string(INVAR_SOURCE_DIR) + "/assets/tiny-hybrid")) {
    if (entry.is_regular_file()) fs::copy_file(entry.path(), fs::path(folder.path()) / entry.path().filename());
  }
  const std::string path = folder.path() + "/tokenizer.json";
  nlohmann::json tokenizer = nlohmann::json::parse(std::ifstream(path));
  nlohmann::json token = tokenizer["added_tokens"][0];
  token["id"] = 99'999;
  token["content"] = "<pad>";
  tokenizer["added_tokens"].push_back(token);
  std::ofstream(path) << tokenizer.dump();
  config::Config config;
  config.model.path = folder.path();
  config.engine.pack_to_file = false;
  const Status status = LoadModelFolder(config).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("found 99999 (<pad>)"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace invar::server
