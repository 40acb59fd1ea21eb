// `invar admin` as operators run it, against a real daemon: every action prints what it did, what is wrong is said in
// one line with what to do, and exit codes tell them apart.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "base/fingerprint.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/tools/ran_command.h"

namespace invar::e2e {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using tools::Ran;

// Exit codes of all commands of `invar` (README.md).
constexpr int kOk = 0;
constexpr int kFailure = 1;
constexpr int kUsage = 2;

class AdminCommand : public testing::Test {
 protected:
  static config::Config Config() {
    config::Config config = TinyConfig();
    config.auth.tokens = {{.tenant = "ops", .sha256 = ToHex(Sha256("admin-token")), .admin = true},
                          {.tenant = "red", .sha256 = ToHex(Sha256("red-token"))}};
    return config;
  }
  void SetUp() override {
    const auto stub = daemon_.NewStub();
    for (int i = 0; i < 3; ++i) {
      v1::GenerateRequest request = TextRequest("One two three four five six seven eight nine ten.", 4);
      if (i == 2) request.mutable_cache()->set_salt("mine");
      ASSERT_TRUE(Collect(*stub, request, std::chrono::seconds(60), "red-token").status.ok());
    }
    ASSERT_TRUE(daemon_.BecomesIdle());
  }
  Ran Admin(const std::string& action, const std::string& arguments, const std::string& token = "admin-token") {
    return tools::RunInvar(
        fmt::format("admin {} --server {} --token '{}' {}", action, daemon_.daemon().grpc_address(), token, arguments));
  }
  json AdminJson(const std::string& action, const std::string& arguments, const std::string& token = "admin-token") {
    const Ran ran = Admin(action, arguments + " --json", token);
    EXPECT_EQ(ran.exit_code, kOk) << ran.output;
    return json::parse(ran.output, nullptr, /*allow_exceptions=*/false);
  }

  RunningDaemon daemon_{Config()};
};

TEST_F(AdminCommand, CachePrintsTotalsCheckpointsTenantsAndNodes) {
  const Ran ran = Admin("cache", "--nodes 10");
  ASSERT_EQ(ran.exit_code, kOk) << ran.output;
  for (const char* const part :
       {"budget ", " MB: live 0.0, cached ", "3 lookups: KV there of ", "price of a checkpoint ", "eviction order ",
        "3 plans in ", "checkpoints ", "  prompt_end ", "  branch ", "tenant red: 2 salts, ", "  [0, "}) {
    EXPECT_THAT(ran.output, HasSubstr(part));
  }
  EXPECT_THAT(ran.output, Not(HasSubstr("mine"))) << "no salt is printed";
  EXPECT_THAT(Admin("cache", "").output, Not(HasSubstr("  [0, "))) << "nodes where they are asked for";

  const json all = AdminJson("cache", "--nodes 10");
  EXPECT_EQ(all["totals"]["lookups"], "3") << "64-bit numbers are texts in JSON of protobuf";
  EXPECT_EQ(all["tenants"][0]["tenant"], "red");
  EXPECT_GT(all["nodes"].size(), 0u);
  // A tenant's own token shows that tenant and no totals.
  const Ran red = Admin("cache", "", "red-token");
  EXPECT_EQ(red.exit_code, kOk);
  EXPECT_THAT(red.output, StartsWith("tenant red: "));
}

TEST_F(AdminCommand, FlushSaysWhatItFreedAndWantsToBeToldWhat) {
  const std::regex freed(R"(freed (\d+) bytes: (\d+) nodes, (\d+) checkpoints\n)");
  std::smatch match;
  const Ran one = Admin("flush", "--tenant red --salt mine");
  ASSERT_EQ(one.exit_code, kOk) << one.output;
  ASSERT_TRUE(std::regex_match(one.output, match, freed)) << one.output;
  EXPECT_GT(std::stoll(match[1]), 0);
  EXPECT_EQ(AdminJson("cache", "")["tenants"][0]["trees"], "1") << "the other salt is there";
  const Ran states = Admin("flush", "--tenant red --part states");
  ASSERT_TRUE(std::regex_match(states.output, match, freed)) << states.output;
  EXPECT_GT(std::stoll(match[3]), 0);
  const Ran all = Admin("flush", "--all");
  EXPECT_EQ(all.exit_code, kOk) << all.output;
  EXPECT_EQ(AdminJson("cache", "")["totals"]["cached_bytes"], "0");
  EXPECT_EQ(AdminJson("flush", "--all")["freed_bytes"], "0");

  const Ran nothing = Admin("flush", "");
  EXPECT_EQ(nothing.exit_code, kUsage);
  EXPECT_THAT(nothing.output, HasSubstr("--all for all that the token speaks for"));
  const Ran part = Admin("flush", "--all --part some");
  EXPECT_EQ(part.exit_code, kUsage);
  EXPECT_THAT(part.output, AllOf(HasSubstr("--part"), HasSubstr("states")));
}

TEST_F(AdminCommand, ExplainSaysWhatIsThereWhatWouldBePlacedAndWhatOthersCost) {
  const std::string text = "--text 'One two three four five six seven eight nine ten.'";
  const std::string longer =
      "--text 'One two three four five six seven eight nine ten. And then it goes on for a while.'";
  const Ran ran = Admin("explain", longer + " --hints 5,24,27", "red-token");
  ASSERT_EQ(ran.exit_code, kOk) << ran.output;
  EXPECT_TRUE(std::regex_search(ran.output, std::regex(R"(^\d+ tokens; KV of \d+ is there, state of \d+\n)")))
      << ran.output;
  for (const char* const part : {"  there:  ", "  prompt_end\n", "  not:         5  hint, before_resume\n",
                                 "  not:        24  hint, near_resume\n", "  placed:     33  prompt_end\n"}) {
    EXPECT_THAT(ran.output, HasSubstr(part));
  }
  // What the class has not taught yet is said, not guessed at.
  EXPECT_THAT(ran.output, HasSubstr("Too few prefixes of this class have been come back to"));
  EXPECT_THAT(ran.output, Not(HasSubstr("seven"))) << "no text is repeated";
  const json plan = AdminJson("explain", text, "red-token");
  EXPECT_GT(plan["kv_match_tokens"], 5);
  // An admin asks for a tenant; its own cache is another.
  EXPECT_EQ(AdminJson("explain", text)["kv_match_tokens"], 0);
  EXPECT_EQ(AdminJson("explain", text + " --tenant red")["kv_match_tokens"], plan["kv_match_tokens"]);
  EXPECT_GT(AdminJson("explain", text + " --salt mine", "red-token")["kv_match_tokens"], 5);

  const Ran ids = Admin("explain", "--tokens 1,2,x", "red-token");
  EXPECT_EQ(ids.exit_code, kUsage);
  EXPECT_THAT(ids.output, HasSubstr("--tokens: wants ids such as 1,2,3, found 'x'"));
  EXPECT_NE(Admin("explain", "", "red-token").exit_code, kOk) << "of what?";
}

// Documents that are come back to at two thirds teach where a new one will be.
TEST(AdminCommandExplain, ComparesWhatItLearnedWithOtherPlacements) {
  RunningDaemon daemon(TinyConfig(), FingerprintLoader(nullptr));
  const auto stub = daemon.NewStub();
  const auto ids = [](const uint32_t seed, const size_t count) {
    std::mt19937 random(seed);
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
    return ids;
  };
  for (uint32_t document = 1; document <= 40; ++document) {
    std::vector<int32_t> next = ids(document, 1000);
    ASSERT_TRUE(Collect(*stub, TokensRequest(next, 2)).status.ok());
    for (uint32_t follow = 1; follow <= 2; ++follow) {
      next.resize(660 + 30 * follow);
      const std::vector<int32_t> tail = ids(1000 * document + follow, 200);
      next.insert(next.end(), tail.begin(), tail.end());
      ASSERT_TRUE(Collect(*stub, TokensRequest(next, 2)).status.ok());
    }
  }
  const std::string command = fmt::format("admin explain --server {} --tokens {}", daemon.daemon().grpc_address(),
                                          fmt::join(ids(99, 1000), ","));
  Ran ran = tools::RunInvar(command);
  // What a class teaches is summed up on a thread of the cache.
  for (int i = 0; i < 100 && ran.output.find("being worked out anew") != std::string::npos; ++i) {
    ran = tools::RunInvar(command);
  }
  ASSERT_EQ(ran.exit_code, kOk) << ran.output;
  EXPECT_TRUE(std::regex_search(ran.output, std::regex(R"(  placed: +[67]\d\d  planned\n)"))) << ran.output;
  for (const char* const policy : {"optimal-dp", "balanced", "block", "none"}) {
    const std::regex row(
        fmt::format(R"(\n  {} +\d+ checkpoints, +\d+ tokens run again, +\d+ with their price\n)", policy));
    EXPECT_TRUE(std::regex_search(ran.output, row)) << policy << " in:\n" << ran.output;
  }
}

TEST_F(AdminCommand, ErrorsNameTheirReason) {
  const Ran other = Admin("cache", "--tenant blue", "red-token");
  EXPECT_EQ(other.exit_code, kFailure);
  EXPECT_THAT(other.output, StartsWith("invar admin: PERMISSION_DENIED: "));
  EXPECT_THAT(other.output, HasSubstr("speaks for tenant 'red', not for 'blue'"));
  for (const char* const action : {"cache", "flush --all", "explain --text a"}) {
    const Ran wrong = Admin(action, "", "wr0ng");
    EXPECT_EQ(wrong.exit_code, kFailure) << action;
    EXPECT_THAT(wrong.output, StartsWith("invar admin: UNAUTHENTICATED: ")) << action;
    EXPECT_THAT(wrong.output, Not(HasSubstr("wr0ng"))) << action;
  }
  const Ran many = Admin("cache", "--nodes 1025");
  EXPECT_EQ(many.exit_code, kFailure);
  EXPECT_THAT(many.output, AllOf(StartsWith("invar admin: INVALID_ARGUMENT: "), HasSubstr("nodes_max")));
  const Ran whose = Admin("flush", "--salt s");
  EXPECT_EQ(whose.exit_code, kFailure);
  EXPECT_THAT(whose.output, StartsWith("invar admin: INVALID_ARGUMENT: "));

  const Ran nobody = tools::RunInvar("admin cache --server 127.0.0.1:1");
  EXPECT_EQ(nobody.exit_code, kFailure);
  EXPECT_THAT(nobody.output, AllOf(StartsWith("invar admin: UNAVAILABLE: "), HasSubstr("127.0.0.1:1")));
  const Ran no_file = tools::RunInvar("admin cache --server 127.0.0.1:1 --tls-ca /nonexistent.pem");
  EXPECT_EQ(no_file.exit_code, kFailure);
  EXPECT_THAT(no_file.output, HasSubstr("/nonexistent.pem"));
  for (const char* const arguments :
       {"admin", "admin frobnicate", "admin cache", "admin cache --server a:1 --no-such"}) {
    EXPECT_EQ(tools::RunInvar(arguments).exit_code, kUsage) << arguments;
  }
  const Ran help = tools::RunInvar("admin --help");
  EXPECT_EQ(help.exit_code, kOk);
  EXPECT_THAT(help.output, AllOf(HasSubstr("cache"), HasSubstr("flush"), HasSubstr("explain")));
}

}  // namespace
}  // namespace invar::e2e
