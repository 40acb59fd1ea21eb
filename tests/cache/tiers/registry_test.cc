// From a configuration to the tiers it names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cache/make_tiers.h"
#include "tests/cache/tiers/redis_server.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/cache/tiers/tier_kinds.h"

namespace invar::cache {
namespace {

using testing::HasSubstr;
using testing::Not;

class TierRegistry : public testing::Test, public TierPlace {
 protected:
  std::unique_ptr<Tier> Open(int64_t) override { return nullptr; }
  TimeNs Now() const override { return clock.Now(); }
  StatusOr<std::vector<std::unique_ptr<Tier>>> Make() { return MakeTiers(config, {clock, *files, "a model"}); }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder.path() + "/" + name) << text;
    return folder.path() + "/" + name;
  }

  RealClock clock;
  TempFolder folder;
  std::unique_ptr<FileLayer> files = MakeSystemFiles();
  config::Config::Cache::Tiers config;
};

TEST_F(TierRegistry, MakesNoneByDefault) {
  const auto tiers = Make();
  ASSERT_TRUE(tiers.ok());
  EXPECT_TRUE(tiers->empty());
}

TEST_F(TierRegistry, MakesWhatIsConfiguredNearestFirst) {
  const RedisServer server({"--requirepass", "sesame"});
  config.ram.budget = 1 << 20;
  config.disk.path = folder.path() + "/tier";
  config.remote.address = server.address();
  config.remote.password_file = Write("password", "sesame\n");
  config.remote.hmac_secret_file = Write("secret", std::string(40, 'x') + "\r\n");
  const auto tiers = Make();
  ASSERT_EQ(tiers.status().ToString(), "OK");
  ASSERT_EQ(tiers->size(), 3u);
  EXPECT_EQ((*tiers)[0]->name(), "ram");
  EXPECT_EQ((*tiers)[1]->name(), "disk");
  EXPECT_EQ((*tiers)[2]->name(), "remote");
  for (const auto& tier : *tiers) {
    EXPECT_EQ(PutMade(*this, *tier, 1, 1000).ToString(), "OK") << tier->name();
    EXPECT_EQ(GetMade(*this, *tier, 1, 1000).ToString(), "OK") << tier->name();
  }
  EXPECT_EQ((*tiers)[1]->Stats().budget_bytes, config.disk.budget);
}

TEST_F(TierRegistry, NamesTheFileAtFaultAndNeverItsContent) {
  config.remote.address = "unix:/nonexistent";
  config.remote.hmac_secret_file = folder.path() + "/missing";
  EXPECT_THAT(Make().status().message(), HasSubstr("/missing"));
  config.remote.hmac_secret_file = Write("short", "tooshort");
  EXPECT_EQ(Make().status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Make().status().message(), Not(HasSubstr("tooshort")));
  config.remote.hmac_secret_file = Write("secret", std::string(32, 'x'));
  EXPECT_TRUE(Make().ok()) << "a server that is down is no error";
  config.remote.password_file = Write("empty", "\n");
  EXPECT_THAT(Make().status().message(), HasSubstr("/empty"));
  config.remote = {};
  config.disk.path = folder.path();
  EXPECT_EQ(Make().status().code(), StatusCode::kFailedPrecondition) << "a folder with other files";
}

}  // namespace
}  // namespace invar::cache
