// A hand-off is understood as it was issued, for its prompt and its time, and nothing that was changed passes.
#include "server/wire/hand_off.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace invar::server {
namespace {

const std::string kSecret(32, 's');
const std::vector<TokenId> kPrompt = {TokenId(1), TokenId(2), TokenId(3)};

TEST(HandOffs, AreUnderstoodAsTheyWereIssued) {
  const HandOffs producer("p1", {}, kSecret);
  const HandOffs consumer("", {"p0", "p1"}, kSecret);
  const std::string json = producer.Issue(kPrompt, 1000);
  EXPECT_EQ(consumer.ProducerOf(json, kPrompt, 1000).value(), "p1");
  EXPECT_EQ(consumer.ProducerOf(json, kPrompt, 1000 + HandOffs::kLifetimeMs).value(), "p1");
  EXPECT_EQ(consumer.ProducerOf(json, kPrompt, 1001 + HandOffs::kLifetimeMs).value(), "") << "too old: anybody";
  EXPECT_EQ(consumer.ProducerOf(json, std::span(kPrompt).first(2), 1000).value(), "") << "of another prompt: anybody";
  EXPECT_EQ(consumer.Issue(kPrompt, 1000), "") << "one without a name issues none";
}

TEST(HandOffs, NothingThatWasChangedPasses) {
  const HandOffs producer("p1", {}, kSecret);
  const HandOffs consumer("", {"p0", "p1"}, kSecret);
  const auto refused = [&](const std::string& json) {
    const StatusOr<std::string> out = consumer.ProducerOf(json, kPrompt, 1000);
    return !out.ok() && out.status().code() == StatusCode::kInvalidArgument &&
           out.status().field() == "kv_transfer_params_json";
  };
  const nlohmann::json good = nlohmann::json::parse(producer.Issue(kPrompt, 1000));
  const std::vector<std::pair<std::string, nlohmann::json>> changes = {{"version", 2},
                                                                       {"version", "1"},
                                                                       {"producer", "p0"},
                                                                       {"producer", 1},
                                                                       {"tokens", 4},
                                                                       {"tokens", -3},
                                                                       {"prefix", "0"},
                                                                       {"expires_unix_ms", 1},
                                                                       {"expires_unix_ms", 1e9},
                                                                       {"mac", ""},
                                                                       {"mac", std::string(64, '0')},
                                                                       {"more", 1},
                                                                       {"tokens", nlohmann::json::array()}};
  for (const auto& [key, value] : changes) {
    nlohmann::json bad = good;
    bad[key] = value;
    EXPECT_TRUE(refused(bad.dump())) << bad;
  }
  for (const auto& [key, value] : good.items()) {
    nlohmann::json bad = good;
    bad.erase(key);
    EXPECT_TRUE(refused(bad.dump())) << "without " << key;
  }
  for (const std::string bad : {"", "{}", "[]", "null", "x", "{\"version\":", "\xff"}) EXPECT_TRUE(refused(bad)) << bad;
  EXPECT_TRUE(refused(std::string(HandOffs::kJsonBytesMax + 1, ' ')));
  EXPECT_TRUE(refused(HandOffs("p1", {}, std::string(32, 't')).Issue(kPrompt, 1000))) << "another secret";
  EXPECT_TRUE(refused(HandOffs("p2", {}, kSecret).Issue(kPrompt, 1000))) << "a producer that is not configured";
}

}  // namespace
}  // namespace invar::server
