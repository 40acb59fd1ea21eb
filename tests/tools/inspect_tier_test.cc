// What `invar inspect` says about a disk tier, sound and damaged.
#include "tools/invar/inspect_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache/tiers/stores.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tools/invar/command.h"

namespace invar::tools {
namespace {

using testing::HasSubstr;

class InspectTier : public testing::Test {
 protected:
  InspectTier() {
    const auto files = cache::MakeSystemFiles();
    const auto store = cache::MakeDiskStore(
        {.path = folder.path(), .budget_bytes = 1 << 24, .store_id = "model aaaa numerics 1"}, *files);
    Check(store.ok(), "the folder opens", store.status().message());
    const std::vector<std::byte> payload(2'000'000, std::byte{7});
    for (int i = 0; i < 3; ++i) {
      cache::TierTransfer transfer(cache::TierPayload{{payload}, nullptr}, kNever);
      cache::TierRecord record{.key = {}, .header = "tokens", .payload_bytes = 2'000'000};
      record.key[0] = static_cast<std::byte>(i);
      const Status stored = (*store)->Put(record, transfer);
      Check(stored.ok(), "the record is stored", stored.message());
    }
  }

  std::string Inspect(const bool check_payloads, const bool as_json, const int wanted_code) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(InspectTierFolder(folder.path(), check_payloads, as_json), wanted_code);
    return testing::internal::GetCapturedStdout();
  }

  cache::TempFolder folder;
};

TEST_F(InspectTier, SaysWhatIsThere) {
  EXPECT_TRUE(IsTierFolder(folder.path()));
  EXPECT_FALSE(IsTierFolder(testing::TempDir()));
  const std::string words = Inspect(true, false, kExitOk);
  EXPECT_THAT(words, HasSubstr("disk tier of 'model aaaa numerics 1'"));
  EXPECT_THAT(words, HasSubstr("3 sound record(s)"));
  EXPECT_THAT(words, HasSubstr("payloads 6.0 MB"));
  EXPECT_THAT(words, HasSubstr("0 damaged"));
  const auto json = nlohmann::json::parse(Inspect(false, true, kExitOk));
  EXPECT_EQ(json["records"], 3);
  EXPECT_EQ(json["payload_bytes"], 6'000'000);
}

TEST_F(InspectTier, FindsADamagedPayloadWhenAskedTo) {
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".record") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1'500'000);
    file.put('x');
    break;
  }
  EXPECT_THAT(Inspect(false, false, kExitOk), HasSubstr("--check"));
  const std::string words = Inspect(true, false, kExitFailure);
  EXPECT_THAT(words, HasSubstr("2 sound record(s)"));
  EXPECT_THAT(words, HasSubstr("the checksum of section 1 is wrong"));
}

}  // namespace
}  // namespace invar::tools
