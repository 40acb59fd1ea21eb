// What `invar inspect` says of a multi-token head: whether there is one, whether it is served, and what it takes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/ran_command.h"

namespace invar::tools {
namespace {

const std::string kModels = std::string(INVAR_SOURCE_DIR) + "/tests/golden/models/";

nlohmann::json Inspect(const std::string& model) {
  const Ran ran = RunInvar("inspect --json " + kModels + model);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  return nlohmann::json::parse(ran.output);
}

TEST(InspectModel, SaysThatThereIsAMultiTokenHead) {
  const nlohmann::json with = Inspect("qwen3_5-vl");
  EXPECT_EQ(with["multi_token_head"], true);
  EXPECT_FALSE(with.contains("why_no_multi_token_head"));
  EXPECT_EQ(with["full_attention_layers"], 1);
  EXPECT_EQ(with["kv_bytes_per_token_bf16"], 2 * 2 * 2 * 32 * 2);  // Two layers, K and V, two heads of 32, two bytes.
  const Ran words = RunInvar("inspect " + kModels + "qwen3_5-vl");
  EXPECT_NE(words.output.find("multi-token head: one layer, served"), std::string::npos) << words.output;
}

TEST(InspectModel, SaysWhyThereIsNone) {
  const nlohmann::json without = Inspect("qwen3_5");
  EXPECT_EQ(without["multi_token_head"], false);
  EXPECT_EQ(without["why_no_multi_token_head"], "the checkpoint has no tensors mtp.*");
  const Ran words = RunInvar("inspect " + kModels + "qwen3_5");
  EXPECT_NE(words.output.find("multi-token head: none, since the checkpoint has no tensors mtp.*"), std::string::npos)
      << words.output;
}

}  // namespace
}  // namespace invar::tools
