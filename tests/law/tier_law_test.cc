// The law from real tiers on real models: a prefix that comes back from host memory, from a disk or from a server of
// the Redis protocol, to the process that wrote it or to one started later, gives the bits of a cold run. At every
// position that can have a checkpoint; what lies in a tier was pushed out of a memory that holds a few prompts only, or
// written at the end of the process before.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cache/make_tiers.h"
#include "engine/engine.h"
#include "kernels/numerics.h"
#include "tests/cache/tiers/redis_server.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/support/tiny_model.h"

namespace invar::engine {
namespace {

using kernels::kPageTokens;
using testing::AssetFolder;
using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::RandomTokens;
using testing::TinyModel;
using Tokens = std::vector<TokenId>;
using TiersConfig = config::Config::Cache::Tiers;

constexpr int32_t kFirst = 8;  // Less than eight tokens are not worth a checkpoint.
constexpr int32_t kPrompt = 2 * kPageTokens + 10;

// One life of a process.
class Process {
 public:
  Process(const std::string& model, const TiersConfig& tiers)
      : tiny_(LoadTinyModel(model, {.backend = "cpu",
                                    .isa = {},
                                    .activations = kernels::DType::kBf16,
                                    .threads = 1,
                                    .max_batch_tokens = 64,
                                    .max_logits_rows = 8})
                  .value()),
        files_(cache::MakeSystemFiles()) {
    const models::ModelSpec& spec = tiny_.model->spec();
    EngineOptions options;
    // So few that no rate is measured: running these models again is faster than any tier, but what counts is the law.
    options.max_batch_tokens = 48;
    options.max_logits_rows = 8;
    options.max_pages = 16;
    options.max_running = 2;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    options.cache.deadlines = {.read = kNever / 2, .write = kNever / 2};
    auto made = cache::MakeTiers(tiers, {.clock = clock_, .files = *files_, .store_id = spec.fingerprint});
    engine_ = Engine::Create(options, std::move(tiny_.model), nullptr, clock_, std::move(made).value()).value();
  }

  std::shared_ptr<Collector> Run(const Request& request) {
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(engine_->Submit(request, events).ok());
    while (events->ends() == 0) {
      if (!engine_->RunOneStep()) std::this_thread::yield();  // It waits for a tier.
    }
    EXPECT_TRUE(events->finished().has_value());
    return events;
  }
  // Writes what memory alone holds and ends.
  void Stop() { (void)engine_->Persist(int64_t{600} * 1'000'000'000); }
  const models::ModelSpec& spec() const { return engine_->spec(); }

 private:
  TinyModel tiny_;
  const RealClock clock_;
  const std::unique_ptr<cache::FileLayer> files_;
  std::unique_ptr<Engine> engine_;
};

Request Plain(Tokens prompt) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = 2;
  request.output.logprobs = 4;
  return request;
}

class TierLaw : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Process process(GetParam(), {});
    vocabulary_ = process.spec().vocabulary_size;
    has_state_ = process.spec().state_bytes > 0;
  }
  // The prompt whose checkpoint lies at `at`, and one that parts from it there.
  Request TrunkOf(const int32_t at) const {
    Request request = Plain(RandomTokens(kPrompt, vocabulary_, 1));
    request.cache.salt = std::to_string(at);  // Each position has a tree of its own.
    request.cache.hints = {at};
    return request;
  }
  Request BranchOf(const int32_t at) const {
    Tokens tokens = TrunkOf(at).prompt;
    Tokens tail = RandomTokens(7, vocabulary_, 1000 + at);
    if (tail[0] == tokens[at]) tail[0] = TokenId((tail[0].value() + 1) % vocabulary_);
    tokens.resize(at);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    Request request = Plain(std::move(tokens));
    request.cache.salt = std::to_string(at);
    request.cache.bypass_write = true;  // Only trunks are in tiers.
    return request;
  }
  void ServeTrunks(Process& process) const {
    for (int32_t at = kFirst; at < kPrompt; ++at) process.Run(TrunkOf(at));
  }
  // Branches that came from `tier`; each equal to its cold run. Where `written` is not all of a trunk yet, its
  // beginning may be all that is found.
  enum class Written { kSomeMayBeUnderWay, kAll };
  int CountOf(const std::string& tier, Process& process, const Written written) {
    if (cold_.empty()) {
      Process without(GetParam(), {});
      for (int32_t at = kFirst; at < kPrompt; ++at) {
        Request request = BranchOf(at);
        request.cache.bypass_read = request.cache.bypass_write = true;
        cold_.push_back(BitsOf(*without.Run(request)));
      }
    }
    int from_tier = 0;
    for (int32_t at = kFirst; at < kPrompt; ++at) {
      const std::shared_ptr<Collector> events = process.Run(BranchOf(at));
      EXPECT_EQ(BitsOf(*events), cold_[at - kFirst]) << "at " << at;
      const PrefixReuse& reuse = events->finished()->reuse;
      if (reuse.tier != tier) continue;
      ++from_tier;
      // Of a dense model's page that the two part in, only whole ones are records.
      const int32_t most = has_state_ ? at : at / kPageTokens * kPageTokens;
      const bool must_be_most = has_state_ || written == Written::kAll;
      EXPECT_GE(reuse.state_match_tokens, must_be_most ? most : 1) << "at " << at;
      EXPECT_LE(reuse.state_match_tokens, most) << "at " << at;
    }
    return from_tier;
  }
  // Positions whose prefix has anything in a tier.
  int positions() const { return has_state_ ? kPrompt - kFirst : kPrompt - kPageTokens; }

  int32_t vocabulary_ = 0;
  bool has_state_ = false;

 private:
  std::vector<std::vector<uint32_t>> cold_;
};

TEST_P(TierLaw, FromHostMemory) {
  TiersConfig tiers;
  tiers.ram.budget = int64_t{1} << 30;
  Process process(GetParam(), tiers);
  ServeTrunks(process);
  EXPECT_GT(CountOf("ram", process, Written::kAll), positions() / 2) << "the last ones are in memory still";
}

TEST_P(TierLaw, FromADiskInTheSameProcessAndAfterARestart) {
  const cache::TempFolder folder;
  TiersConfig tiers;
  tiers.disk.path = folder.path();
  tiers.disk.budget = int64_t{1} << 30;
  {
    Process process(GetParam(), tiers);
    ServeTrunks(process);
    // What is being written cannot be read yet: on a slow disk that may be all of it for a while.
    int from_disk = 0;
    const RealClock clock;
    const TimeNs patience = clock.Now() + TimeNs{60} * 1'000'000'000;
    while (from_disk == 0 && clock.Now() < patience) {
      from_disk = CountOf("disk", process, Written::kSomeMayBeUnderWay);
    }
    EXPECT_GT(from_disk, 0);
    process.Stop();
  }
  Process later(GetParam(), tiers);
  EXPECT_EQ(CountOf("disk", later, Written::kAll), positions());
}

TEST_P(TierLaw, FromASharedServerInTheSameProcessAndInAnother) {
  cache::RedisServer server;
  const cache::TempFolder folder;
  const std::string secret = folder.path() + "/secret";
  std::ofstream(secret) << std::string(64, 's') << '\n';
  ASSERT_EQ(chmod(secret.c_str(), S_IRUSR | S_IWUSR), 0);
  TiersConfig tiers;
  tiers.remote.address = server.address();
  tiers.remote.hmac_secret_file = secret;
  {
    Process process(GetParam(), tiers);
    ServeTrunks(process);
    EXPECT_GT(CountOf("remote", process, Written::kSomeMayBeUnderWay), 0) << "what is being written cannot be read yet";
    process.Stop();
  }
  Process other(GetParam(), tiers);
  EXPECT_EQ(CountOf("remote", other, Written::kAll), positions());
}

INSTANTIATE_TEST_SUITE_P(Models, TierLaw,
                         ::testing::Values(AssetFolder("tiny-hybrid"), GoldenFolder("qwen3_5_moe"),
                                           GoldenFolder("qwen3_next"), GoldenFolder("qwen3")),
                         [](const auto& p) { return testing::TestNameOf(p.param); });

}  // namespace
}  // namespace invar::engine
