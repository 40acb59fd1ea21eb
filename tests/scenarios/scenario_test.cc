// Behaviour of the whole engine as data: each YAML file of this folder is one scenario, requests in and ends out. It
// runs on the model of hashes, step by step on a simulated clock (one millisecond a step); whatever finishes must also
// give the tokens and the text that its prefix gives. A bug becomes a file here before it is fixed.
//
//   about: one sentence
//   engine: {pages, max_batch_tokens, max_running, max_queued}
//   requests: list of {name, prompt (tokens), salt, shares: {prompt_of (an earlier name), tokens}, max_tokens,
//              min_tokens, temperature, seed, stop, stop_ids, include_stop, priority, tenant, cache_salt, hints,
//              bypass_read, bypass_write, at (step of arrival), cancel_at (step), deadline_ms, reader (events until it
//              is behind), expect: {end, tokens, started, before (name of a request that ends later), preempted,
//              kv_match, state_match}}
//     prompt: own tokens, after those it shares with an earlier prompt; salt: another one, other tokens
//     end: length | stop | CANCELLED | DEADLINE_EXCEEDED | ... ; "refused CODE" where Submit must say no
//   flushes: list of {at (step), tenant, cache_salt, part: all | kv | states}
//   stats: {preemptions_min, preemptions_in_prefill_min}
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/engine.h"
#include "tests/engine/collector.h"
#include "tools/sim/oracle.h"
#include "tools/sim/sim_tokenizer.h"

namespace invar::engine {
namespace {

constexpr TimeNs kStepTime = 1'000'000;
constexpr int kStepsMax = 20'000;

struct Actor {
  std::string name;
  YAML::Node node;
  Request request;
  std::shared_ptr<Collector> events;
  StatusOr<SequenceId> id = SequenceId(0);
  bool submitted = false;
  int ended_at = -1;  // Step.
};

// `node` may be missing altogether.
template <typename T>
T Get(const YAML::Node& node, const char* const key, const T fallback) {
  return node.IsDefined() && node[key] ? node[key].as<T>() : fallback;
}

class Scenario {
 public:
  explicit Scenario(const std::string& path) : node_(YAML::LoadFile(path)) {
    const YAML::Node options_node = node_["engine"];
    EngineOptions options;
    options.max_pages = Get(options_node, "pages", 40);
    options.max_batch_tokens = Get(options_node, "max_batch_tokens", 64);
    options.max_running = Get(options_node, "max_running", 8);
    options.max_queued = Get(options_node, "max_queued", 1000);
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    engine_ = Engine::Create(options, models::MakeFingerprintModel(model_), &tokenizer_, clock_).value();
    for (const YAML::Node& request : node_["requests"]) AddActor(request);
  }

  void Run() {
    for (int step = 0; step < kStepsMax && !AllEnded(); ++step) {
      for (const YAML::Node& flush : node_["flushes"]) {
        if (flush["at"].as<int>() != step) continue;
        ASSERT_TRUE(engine_->FlushCache(FlushOf(flush)).ok());
      }
      for (Actor& actor : actors_) Act(actor, step);
      engine_->RunOneStep();
      clock_.Advance(kStepTime);
      for (Actor& actor : actors_) {
        if (actor.submitted && actor.ended_at < 0 && actor.events->ends() > 0) actor.ended_at = step;
      }
    }
    for (const Actor& actor : actors_) Judge(actor);
    JudgeStats();
  }

 private:
  void AddActor(const YAML::Node& node) {
    Actor actor;
    actor.name = node["name"].as<std::string>();
    actor.node = node;
    Request& request = actor.request;
    const int32_t salt = Get(node, "salt", static_cast<int32_t>(actors_.size()));
    if (const YAML::Node shares = node["shares"]) {
      const std::vector<TokenId>& other = Find(shares["prompt_of"].as<std::string>()).request.prompt;
      request.prompt.assign(other.begin(), other.begin() + shares["tokens"].as<int32_t>());
    }
    for (int32_t i = 0; i < node["prompt"].as<int32_t>(); ++i) request.prompt.emplace_back((i * 7 + salt) % 60);
    request.cache = {.salt = Get(node, "cache_salt", std::string()),
                     .bypass_read = Get(node, "bypass_read", false),
                     .bypass_write = Get(node, "bypass_write", false),
                     .hints = Get(node, "hints", std::vector<int32_t>{})};
    request.sampling.temperature = Get(node, "temperature", 0.0F);
    request.sampling.seed = Get(node, "seed", uint64_t{0});
    request.stopping.max_tokens = node["max_tokens"].as<int32_t>();
    request.stopping.min_tokens = Get(node, "min_tokens", 0);
    request.stopping.stop = Get(node, "stop", std::vector<std::string>{});
    for (const int32_t id : Get(node, "stop_ids", std::vector<int32_t>{})) {
      request.stopping.stop_token_ids.emplace_back(id);
    }
    request.stopping.include_stop = Get(node, "include_stop", false);
    request.priority = Get(node, "priority", 0);
    request.tenant = Get(node, "tenant", std::string());
    actor.events = std::make_shared<Collector>(Get(node, "reader", 0));
    actors_.push_back(std::move(actor));
  }

  static cache::FlushOptions FlushOf(const YAML::Node& node) {
    static const std::map<std::string, cache::CachedPart> kParts = {
        {"all", cache::CachedPart::kAll}, {"kv", cache::CachedPart::kKv}, {"states", cache::CachedPart::kStates}};
    cache::FlushOptions flush{.part = kParts.at(Get(node, "part", std::string("all")))};
    if (node["tenant"]) {
      flush.tenant = node["tenant"].as<std::string>();
      flush.salt = Get(node, "cache_salt", std::string());
    }
    return flush;
  }

  bool AllEnded() const {
    return std::all_of(actors_.begin(), actors_.end(), [](const Actor& actor) {
      return actor.submitted && (!actor.id.ok() || actor.events->ends() > 0);
    });
  }

  void Act(Actor& actor, const int step) {
    if (!actor.submitted && step >= Get(actor.node, "at", 0)) {
      if (actor.node["deadline_ms"]) {
        actor.request.deadline = clock_.Now() + kStepTime * actor.node["deadline_ms"].as<int64_t>();
      }
      actor.id = engine_->Submit(actor.request, actor.events);
      actor.submitted = true;
    }
    if (actor.submitted && actor.id.ok() && step == Get(actor.node, "cancel_at", -1)) engine_->Cancel(*actor.id);
  }

  static std::string EndOf(const Actor& actor) {
    if (!actor.id.ok()) return "refused " + std::string(StatusCodeName(actor.id.status().code()));
    if (actor.events->failed().has_value()) return std::string(StatusCodeName(actor.events->failed()->code()));
    if (!actor.events->finished().has_value()) return "no end";
    return actor.events->finished()->reason == FinishReason::kStop ? "stop" : "length";
  }

  void Judge(const Actor& actor) {
    const YAML::Node expect = actor.node["expect"];
    SCOPED_TRACE(actor.name);
    EXPECT_EQ(EndOf(actor), expect["end"].as<std::string>());
    if (expect["tokens"]) {
      EXPECT_EQ(actor.events->tokens().size(), expect["tokens"].as<size_t>());
    }
    if (expect["started"]) {
      EXPECT_EQ(actor.events->events() > actor.events->ends(), expect["started"].as<bool>());
    }
    if (expect["before"]) {
      EXPECT_LT(actor.ended_at, Find(expect["before"].as<std::string>()).ended_at);
    }
    if (!actor.id.ok() || !actor.events->finished().has_value()) return;
    if (expect["preempted"]) {
      EXPECT_EQ(actor.events->finished()->preemptions > 0, expect["preempted"].as<bool>());
    }
    const PrefixReuse& reuse = actor.events->finished()->reuse;
    if (expect["kv_match"]) {
      EXPECT_EQ(reuse.kv_match_tokens, expect["kv_match"].as<int32_t>());
    }
    if (expect["state_match"]) {
      EXPECT_EQ(reuse.state_match_tokens, expect["state_match"].as<int32_t>());
    }
    const sim::Expected expected = sim::ExpectedAnswer(actor.request, model_, tokenizer_);
    EXPECT_EQ(actor.events->tokens(), expected.tokens);
    EXPECT_EQ(actor.events->text(), expected.text);
    EXPECT_EQ(actor.events->finished()->matched, expected.matched);
  }

  const Actor& Find(const std::string& name) const {
    return *std::find_if(actors_.begin(), actors_.end(), [&](const Actor& actor) { return actor.name == name; });
  }

  void JudgeStats() const {
    const EngineStats stats = engine_->Stats();
    EXPECT_EQ(stats.pages_used, 0);
    EXPECT_EQ(stats.slots_used, 0);
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_GE(stats.preemptions, Get(node_["stats"], "preemptions_min", int64_t{0}));
    EXPECT_GE(stats.preemptions_in_prefill, Get(node_["stats"], "preemptions_in_prefill_min", int64_t{0}));
  }

  const YAML::Node node_;
  const models::FingerprintOptions model_;
  const sim::SimTokenizer tokenizer_{60};
  SimulatedClock clock_;
  std::unique_ptr<Engine> engine_;
  std::vector<Actor> actors_;
};

std::vector<std::string> ScenarioFiles() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(INVAR_SOURCE_DIR) + "/tests/scenarios")) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class ScenarioFile : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioFile, EndsAsWritten) { Scenario(GetParam()).Run(); }

INSTANTIATE_TEST_SUITE_P(All, ScenarioFile, testing::ValuesIn(ScenarioFiles()),
                         [](const auto& p) { return std::filesystem::path(p.param).stem().string(); });

}  // namespace
}  // namespace invar::engine
