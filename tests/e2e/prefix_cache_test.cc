// The prefix cache as a caller sees it: what turns of a chat cost, what responses and metrics say of it, who shares
// with whom, and that no bit of an answer depends on it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <set>
#include <thread>

#include "base/fingerprint.h"
#include "config/cache_names.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

std::vector<int32_t> Ids(const uint32_t seed, const int32_t count) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
  return ids;
}
std::vector<int32_t> Join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The same request as if there were no cache.
Outcome Cold(v1::GenerationService::Stub& stub, v1::GenerateRequest request) {
  request.mutable_cache()->set_bypass_read(true);
  request.mutable_cache()->set_bypass_write(true);
  Outcome outcome = Collect(stub, request);
  EXPECT_EQ(outcome.finished.usage().cached_tokens(), 0);
  return outcome;
}

void ExpectSameAnswer(const Outcome& outcome, const Outcome& other) {
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.token_ids, other.token_ids);
  EXPECT_EQ(outcome.logit_bits, other.logit_bits);
  EXPECT_EQ(outcome.logprob_bits, other.logprob_bits);
  EXPECT_EQ(outcome.text, other.text);
}

// What every response must say of its reuse.
void ExpectReuseAddsUp(const Outcome& outcome) {
  ASSERT_TRUE(outcome.messages.front().has_started());
  const v1::PrefixReuse& started = outcome.messages.front().started().reuse();
  const v1::PrefixReuse& reuse = outcome.finished.reuse();
  const v1::Usage& usage = outcome.finished.usage();
  EXPECT_EQ(started.SerializeAsString(), reuse.SerializeAsString()) << "nothing happened in between";
  EXPECT_GE(reuse.kv_match_tokens(), reuse.state_match_tokens());
  EXPECT_EQ(reuse.recomputed_tokens(), reuse.kv_match_tokens() - reuse.state_match_tokens());
  EXPECT_EQ(reuse.computed_tokens(), usage.prompt_tokens() - reuse.state_match_tokens());
  EXPECT_EQ(usage.cached_tokens(), reuse.state_match_tokens());
  EXPECT_GE(reuse.computed_tokens(), 1);
}

class PrefixCache : public testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = new RunningDaemon(TinyConfig()); }
  static void TearDownTestSuite() {
    delete daemon_;
    daemon_ = nullptr;
  }
  void SetUp() override {
    stub_ = daemon_->NewStub();
    EXPECT_TRUE(daemon_->daemon().model()->engine->FlushCache({}).ok());
  }

  static RunningDaemon* daemon_;  // One for all; each test finds an empty cache.
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};
RunningDaemon* PrefixCache::daemon_ = nullptr;

// ggml-org/llama.cpp#20225: each turn of a chat computed the whole conversation again.
TEST_F(PrefixCache, EightTurnsOfAChatComputeTheirNewTokens) {
  v1::GenerateRequest request = TokensRequest({}, 24);
  const auto say = [&](const std::string& role, const std::string& content) {
    v1::ChatMessage& message = *request.mutable_chat()->add_messages();
    message.set_role(role);
    message.set_content(content);
  };
  say("system", "You know the badges of everybody in this house and answer in one short sentence.");
  int32_t prompt_before = 0;
  for (int turn = 1; turn <= 8; ++turn) {
    say("user", "Turn " + std::to_string(turn) + ": what is the badge of Clara, and who has the badge before hers?");
    const Outcome outcome = Collect(*stub_, request);
    ExpectSameAnswer(outcome, Cold(*stub_, request));
    ExpectReuseAddsUp(outcome);
    const int32_t prompt = outcome.finished.usage().prompt_tokens();
    if (turn > 1) {
      EXPECT_LE(outcome.finished.reuse().computed_tokens(), prompt - prompt_before + 64) << "turn " << turn;
    }
    prompt_before = prompt;
    say("assistant", outcome.text);
  }
}

TEST_F(PrefixCache, SharedPrefixesHitFromTheThirdSightingOn) {
  for (const int32_t shared : {8, 50, 100, 300, 600}) {
    const std::vector<int32_t> trunk = Ids(1, shared);
    for (int32_t i = 1; i <= 4; ++i) {
      const v1::GenerateRequest request = TokensRequest(Join(trunk, Join({i}, Ids(100 * shared + i, 30))), 3);
      const Outcome outcome = Collect(*stub_, request);
      ExpectSameAnswer(outcome, Cold(*stub_, request));
      ExpectReuseAddsUp(outcome);
      if (i >= 3) {
        EXPECT_EQ(outcome.finished.usage().cached_tokens(), shared) << "sighting " << i;
      }
    }
    EXPECT_TRUE(daemon_->daemon().model()->engine->FlushCache({}).ok());
  }
}

TEST_F(PrefixCache, HintsHitFromTheSecondSightingOn) {
  v1::GenerateRequest first = TokensRequest(Join(Ids(2, 101), Ids(3, 50)), 2);
  first.mutable_cache()->add_checkpoint_hints(101);
  ASSERT_TRUE(Collect(*stub_, first).status.ok());
  const Outcome second = Collect(*stub_, TokensRequest(Join(Ids(2, 101), Ids(4, 50)), 2));
  EXPECT_EQ(second.finished.usage().cached_tokens(), 101);
}

// ikawrakow/ik_llama.cpp#1932: sixteen identical prompts gave more than one answer.
TEST_F(PrefixCache, IdenticalPromptsAtOnceGiveOneAnswer) {
  const v1::GenerateRequest request = TokensRequest(Ids(5, 140), 40);
  const Outcome cold = Cold(*stub_, request);
  for (const int count : {2, 3, 4, 8, 16}) {
    std::vector<std::future<Outcome>> together;
    for (int i = 0; i < count; ++i) {
      together.push_back(std::async(std::launch::async, [&] { return Collect(*stub_, request); }));
    }
    for (std::future<Outcome>& outcome : together) ExpectSameAnswer(outcome.get(), cold);
  }
}

// The law, through the whole daemon, with prefixes shared among what runs at once and before.
TEST_F(PrefixCache, SixtyFourConcurrentStreamsWithSharedPrefixesEqualTheirColdRuns) {
  constexpr int kStreams = 64;
  std::mt19937 random(11);
  const std::vector<int32_t> trunk = Ids(6, 260);
  std::vector<v1::GenerateRequest> requests;
  std::vector<Outcome> cold;
  for (int i = 0; i < kStreams; ++i) {
    std::vector<int32_t> ids(trunk.begin(), trunk.begin() + static_cast<int>(random() % 260));
    v1::GenerateRequest request =
        TokensRequest(Join(ids, Ids(1000 + i % 40, 1 + i % 23)), static_cast<int32_t>(8 + random() % 40));
    if (i % 2 == 1) {
      request.mutable_sampling()->set_temperature(0.8F);
      request.mutable_sampling()->set_seed(i);
    }
    if (i % 5 == 2) request.mutable_sampling()->set_repetition_penalty(1.2F);
    if (i % 7 == 3) request.mutable_cache()->add_checkpoint_hints(static_cast<int32_t>(ids.size() / 2));
    requests.push_back(request);
    cold.push_back(Cold(*stub_, request));
  }
  int hits = 0;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::future<Outcome>> together;
    for (const v1::GenerateRequest& request : requests) {
      together.push_back(std::async(std::launch::async, [&] { return Collect(*stub_, request); }));
    }
    for (int i = 0; i < kStreams; ++i) {
      SCOPED_TRACE("round " + std::to_string(round) + ", stream " + std::to_string(i));
      const Outcome outcome = together[i].get();
      ExpectSameAnswer(outcome, cold[i]);
      ExpectReuseAddsUp(outcome);
      hits += outcome.finished.usage().cached_tokens() > 0 ? 1 : 0;
    }
  }
  // How many of the first round hit depends on who comes first; prompts of a few tokens never do.
  EXPECT_GT(hits, kStreams / 2);
  EXPECT_TRUE(daemon_->BecomesIdle());
}

TEST_F(PrefixCache, SaltsSeparateAndBypassWorks) {
  const auto cached = [&](const std::string& salt, const bool bypass_read, const bool bypass_write) {
    v1::GenerateRequest request = TokensRequest(Ids(7, 150), 4);
    request.mutable_cache()->set_salt(salt);
    request.mutable_cache()->set_bypass_read(bypass_read);
    request.mutable_cache()->set_bypass_write(bypass_write);
    const Outcome outcome = Collect(*stub_, request);
    EXPECT_TRUE(outcome.status.ok());
    ExpectReuseAddsUp(outcome);
    return outcome.finished.reuse().kv_match_tokens();
  };
  EXPECT_EQ(cached("a", false, true), 0);
  EXPECT_EQ(cached("a", false, false), 0) << "bypass_write has left nothing";
  EXPECT_EQ(cached("a", true, false), 0) << "bypass_read finds nothing";
  EXPECT_EQ(cached("b", false, false), 0) << "another salt";
  EXPECT_EQ(cached("", false, false), 0) << "no salt";
  EXPECT_EQ(cached("a", false, false), 150);
  EXPECT_EQ(cached("b", false, false), 150);
}

TEST(PrefixCacheTenants, ShareNothing) {
  config::Config config = TinyConfig();
  config.auth.tokens = {{.tenant = "red", .sha256 = ToHex(Sha256("red's"))},
                        {.tenant = "blue", .sha256 = ToHex(Sha256("blue's"))},
                        {.tenant = "blue", .sha256 = ToHex(Sha256("blue's other"))}};
  RunningDaemon daemon(config);
  const auto stub = daemon.NewStub();
  const auto found = [&](const std::string& token) {
    const Outcome outcome = Collect(*stub, TokensRequest(Ids(8, 200), 4), std::chrono::seconds(60), token);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    return outcome.finished.reuse().kv_match_tokens();
  };
  EXPECT_EQ(found("red's"), 0);
  EXPECT_EQ(found("blue's"), 0);
  EXPECT_EQ(found("red's"), 200);
  EXPECT_EQ(found("blue's other"), 200) << "two tokens of one tenant are one tenant";
}

// The numbers of the metrics are those of the responses.
TEST(PrefixCacheMetrics, LookupsAreWhatWasResumedAndWhatRan) {
  RunningDaemon daemon(TinyConfig());
  const auto stub = daemon.NewStub();
  int64_t requests = 0, prompt = 0, kv = 0, state = 0, recomputed = 0, computed = 0;
  std::mt19937 random(3);
  const std::vector<int32_t> trunk = Ids(9, 300);
  for (int i = 0; i < 40; ++i) {
    const std::vector<int32_t> ids(trunk.begin(), trunk.begin() + static_cast<int>(1 + random() % 300));
    v1::GenerateRequest request = TokensRequest(Join(ids, Ids(i, 1 + i % 9)), 1 + i % 20);
    request.mutable_cache()->set_bypass_read(i % 10 == 9);
    const Outcome outcome = Collect(*stub, request);
    ASSERT_TRUE(outcome.status.ok());
    ExpectReuseAddsUp(outcome);
    computed += outcome.finished.reuse().computed_tokens();
    if (request.cache().bypass_read()) continue;
    ++requests;
    prompt += outcome.finished.usage().prompt_tokens();
    kv += outcome.finished.reuse().kv_match_tokens();
    state += outcome.finished.reuse().state_match_tokens();
    recomputed += outcome.finished.reuse().recomputed_tokens();
  }
  ASSERT_TRUE(daemon.BecomesIdle());
  const std::string text = daemon.daemon().MetricsText();
  EXPECT_EQ(MetricSum(text, "invar_prefix_lookups_total"), requests);
  EXPECT_EQ(MetricSum(text, "invar_prefix_lookup_tokens_total"), prompt);
  EXPECT_EQ(MetricSum(text, "invar_prefix_attention_hit_tokens_total"), kv);
  EXPECT_EQ(MetricSum(text, "invar_prefix_resume_tokens_total"), state);
  EXPECT_EQ(MetricSum(text, "invar_prefix_recomputed_tokens_total"), recomputed);
  EXPECT_GT(state, 0);
  EXPECT_GT(recomputed, 0);
  // Lookups = resumed + run; nothing was preempted.
  EXPECT_EQ(daemon.stats().prefill_tokens, computed);
  EXPECT_EQ(MetricSum(text, "vllm:prefix_cache_queries_total"), prompt);
  EXPECT_EQ(MetricSum(text, "vllm:prefix_cache_hits_total"), state);
  EXPECT_GT(MetricSum(text, "invar_cached_bytes"), 0);
  EXPECT_LE(MetricSum(text, "invar_cached_bytes"), MetricSum(text, "invar_cache_budget_bytes"));
}

TEST(PrefixCacheMetrics, SayWhetherAnythingCanEverHit) {
  config::Config config = TinyConfig();
  for (const bool on : {true, false}) {
    config.cache.enabled = on;
    RunningDaemon daemon(config);
    EXPECT_EQ(MetricSum(daemon.daemon().MetricsText(), "invar_prefix_reuse_possible"), on ? 1 : 0);
    const auto stub = daemon.NewStub();
    for (int i = 0; i < 2; ++i) {
      const Outcome outcome = Collect(*stub, TokensRequest(Ids(8, 200), 4));
      EXPECT_EQ(outcome.finished.usage().cached_tokens() > 0, on && i == 1);
    }
  }
}

// LMCache/LMCache#4991, #4558 (case 37): a store that went wrong stayed visible and served garbage. Every record that a
// daemon left on its disk is damaged before the next one starts: nothing of it is used, and answers are those of cold
// runs. Without damage the next one uses them.
TEST(PrefixCacheDisk, DamagedRecordsAreMissesAndNeverAnswers) {
  namespace fs = std::filesystem;
  const v1::GenerateRequest request = TokensRequest(Ids(31, 300), 8);
  for (const bool damages : {false, true}) {
    const cache::TempFolder folder;
    config::Config config = TinyConfig();
    config.cache.tiers.disk.path = folder.path();
    Outcome cold;
    {
      RunningDaemon daemon(config);
      const auto stub = daemon.NewStub();
      cold = Cold(*stub, request);
      ExpectSameAnswer(Collect(*stub, request), cold);
      EXPECT_TRUE(daemon.BecomesIdle());
      daemon.daemon().BeginDrain();
      daemon.daemon().Persist({});
    }
    int damaged = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.path())) {
      constexpr uintmax_t kRecordBytesMin = 1024;  // The folder's own files are shorter.
      if (!damages || !entry.is_regular_file() || entry.file_size() < kRecordBytesMin) continue;
      if (++damaged % 2 == 0) {
        fs::resize_file(entry.path(), entry.file_size() - 1);
        continue;
      }
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const auto middle = static_cast<std::streamoff>(entry.file_size() / 2);
      const char byte = static_cast<char>(file.seekg(middle).get());
      file.seekp(middle).put(static_cast<char>(byte ^ 1));
    }
    EXPECT_EQ(damaged > 2, damages);
    RunningDaemon daemon(config);
    const auto stub = daemon.NewStub();
    const Outcome outcome = Collect(*stub, request);
    ExpectSameAnswer(outcome, cold);
    if (damages) {
      EXPECT_EQ(outcome.finished.usage().cached_tokens(), 0);
    } else {
      EXPECT_GT(outcome.finished.usage().cached_tokens(), 250);
    }
  }
}

// Whatever is configured decides what is kept, never a bit of an answer.
TEST(PrefixCacheTuning, EveryPlacementAndEvictionGivesTheSameBits) {
  std::vector<v1::GenerateRequest> requests;
  const std::vector<int32_t> trunk = Ids(21, 400);
  for (int i = 0; i < 12; ++i) {
    const std::vector<int32_t> ids(trunk.begin(), trunk.begin() + 40 + 30 * (i * 5 % 12));
    v1::GenerateRequest request = TokensRequest(Join(ids, Ids(2000 + i, 90 + i)), 6);
    if (i % 4 == 1) request.mutable_cache()->add_checkpoint_hints(static_cast<int32_t>(ids.size()));
    requests.push_back(request);
    requests.push_back(TokensRequest(Join(Join(ids, Ids(2000 + i, 90 + i)), Ids(3000 + i, 20)), 6));  // A follow-up.
  }
  config::Config config = TinyConfig();
  config.engine.running_max = 2;
  config.engine.kv_budget = int64_t{2} << 20;
  std::vector<Outcome> cold;
  const auto play = [&](const bool caches) {
    RunningDaemon daemon(config);
    const auto stub = daemon.NewStub();
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      const Outcome outcome = Collect(*stub, requests[i]);
      if (!caches) {
        ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
        cold.push_back(outcome);
      } else {
        ExpectSameAnswer(outcome, cold[i]);
        ExpectReuseAddsUp(outcome);
      }
    }
    const cache::PlacementReport report = daemon.stats().cache;
    const bool keeps_states = caches && config.cache.placement != "none" && config.cache.placement != "kv-only";
    EXPECT_EQ(report.state_match_tokens > 0, keeps_states);
    EXPECT_EQ(report.eviction_passes > 0, keeps_states) << "the budget is short for states, but not for KV alone";
    if (config.cache.eviction != "duel") {
      EXPECT_EQ(report.eviction_order, config.cache.eviction);
    }
  };
  config.cache.enabled = false;
  play(false);
  config.cache.enabled = true;
  for (const std::string_view placement : kPlacementNames) {
    for (const std::string_view eviction : kEvictionNames) {
      SCOPED_TRACE(std::string(placement) + ", " + std::string(eviction));
      config.cache.placement = placement;
      config.cache.eviction = eviction;
      config.cache.planned_checkpoints_max = 3;
      config.cache.probation_share = 0.5;
      play(true);
    }
  }
}

// vllm-project/vllm#53912: a step went over the boundary at which a state should have been kept. Prompts end around a
// page's end, answers cross the next one, and the follow-up resumes there.
TEST(PrefixCacheTurns, FollowUpsOfAnswersThatCrossAPageEqualTheirColdRuns) {
  RunningDaemon daemon(TinyConfig(), FingerprintLoader(nullptr));
  constexpr int kRepeats = 200;
  constexpr int kThreads = 4;
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      const auto stub = daemon.NewStub();
      for (int i = t; i < kRepeats; i += kThreads) {
        const std::vector<int32_t> prompt = Ids(50 + i % 7, 64 * (1 + i % 2) - 3 + i % 6);
        const v1::GenerateRequest first = TokensRequest(prompt, 60 + i % 11);
        const Outcome answer = Collect(*stub, first);
        ExpectSameAnswer(answer, Cold(*stub, first));
        const v1::GenerateRequest second = TokensRequest(Join(prompt, Join(answer.token_ids, Ids(900 + i, 5))), 8);
        const Outcome follow_up = Collect(*stub, second);
        ExpectSameAnswer(follow_up, Cold(*stub, second));
        EXPECT_GE(follow_up.finished.usage().cached_tokens(),
                  static_cast<int32_t>(prompt.size() + answer.token_ids.size()) - 1);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(daemon.BecomesIdle());
}

}  // namespace
}  // namespace invar::e2e
