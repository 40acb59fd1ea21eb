// The drafter on compressed KV in an engine: who gets its memory, and when it comes back. What it drafts is held to the
// law in law_compressed_draft_test.cc.
#include <gtest/gtest.h>

#include "tests/engine/speculation_rig.h"

namespace invar::engine {
namespace {

const Subject kHybrid{"tiny_hybrid", testing::AssetFolder("tiny-hybrid"), kernels::DType::kBf16};

Request Drafted(const int32_t prompt_tokens, const int32_t max_tokens, const char* const compressor = "k8v4") {
  Request request;
  request.prompt = testing::RandomTokens(prompt_tokens, 512, 9);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = max_tokens;
  request.speculation = {.drafter = "compressed_kv", .draft_tokens = 4, .compressor = compressor, .kv_budget = {}};
  return request;
}

struct Stream {
  SequenceId id;
  std::shared_ptr<Collector> events;
  const SpeculationReport& report() const { return *events->finished()->speculation; }
};
Stream Submit(Rig& rig, const Request& request, const int bound = 0) {
  auto events = std::make_shared<Collector>(bound);
  const SequenceId id = rig.engine->Submit(request, events).value();
  return {id, events};
}

std::vector<TokenId> PlainAnswer(Request request) {
  request.speculation = {};
  return Rig::Make(kHybrid, {})->Run(request)->tokens();
}

int64_t WithoutMemory(const Rig& rig) {
  return rig.engine->Stats().speculation.fallbacks[static_cast<size_t>(FallbackReason::kNoDraftMemory)];
}

TEST(CompressedKvDrafter, WithoutMemoryItDraftsNothingAndSaysWhy) {
  EngineOptions options;
  options.draft_memory_bytes = 4096;
  const auto rig = Rig::Make(kHybrid, options);
  const Request request = Drafted(100, 40);
  const Stream stream = Submit(*rig, request);
  rig->RunUntilIdle();
  EXPECT_EQ(stream.events->tokens(), PlainAnswer(request));
  EXPECT_EQ(stream.report().rounds, 0);
  EXPECT_EQ(stream.report().fallback_reason, "no_draft_memory");
  EXPECT_EQ(stream.report().compressor, "");
  EXPECT_EQ(WithoutMemory(*rig), 38);  // Not of the prompt's step, nor of the last token's.
}

TEST(CompressedKvDrafter, WhoeverFoundNoMemoryDraftsWhenAnotherHasEnded) {
  const auto rig = Rig::Make(kHybrid, {}, /*draft_sequences=*/1);
  const Stream first = Submit(*rig, Drafted(60, 30));
  const Stream second = Submit(*rig, Drafted(61, 90));
  rig->RunUntilIdle();
  EXPECT_EQ(first.report().fallback_reason, "");
  EXPECT_GT(second.report().rounds, 5);
  EXPECT_GT(WithoutMemory(*rig), 3);
  EXPECT_EQ(rig->engine->Stats().speculation.drafter_bytes, 0);
}

TEST(CompressedKvDrafter, ViewsGrowWithTheirTextAndAreWithinTheirMemory) {
  const auto rig = Rig::Make(kHybrid, {});
  const Stream stream = Submit(*rig, Drafted(64, 400, "noop"));
  int64_t most = 0;
  while (rig->engine->RunOneStep()) most = std::max(most, rig->engine->Stats().speculation.drafter_bytes);
  const models::ModelSpec& spec = rig->engine->spec();
  EXPECT_GT(most, 6 * spec.page_bytes);
  EXPECT_LT(most, 10 * spec.page_bytes + spec.state_bytes);
  EXPECT_EQ(stream.report().accepted_tokens, stream.report().drafted_tokens);
  EXPECT_EQ(rig->engine->Stats().speculation.drafter_bytes, 0);
}

TEST(CompressedKvDrafter, ACancelledSequenceGivesEverythingBackAtOnce) {
  const auto rig = Rig::Make(kHybrid, {});
  const Stream stream = Submit(*rig, Drafted(100, 200));
  for (int i = 0; i < 10; ++i) rig->engine->RunOneStep();
  EXPECT_GT(rig->engine->Stats().speculation.drafter_bytes, 0);
  rig->engine->Cancel(stream.id);
  rig->engine->RunOneStep();
  EXPECT_EQ(rig->engine->Stats().speculation.drafter_bytes, 0);
}

TEST(CompressedKvDrafter, AfterAPreemptionDraftsGoOnWhereTheyWere) {
  EngineOptions options;
  options.max_pages = 5;
  const auto rig = Rig::Make(kHybrid, options);
  const Request older = Drafted(100, 110, "noop");
  const Request younger = Drafted(90, 110, "noop");
  const Stream first = Submit(*rig, older);
  const Stream second = Submit(*rig, younger);
  rig->RunUntilIdle();
  EXPECT_GT(second.events->finished()->preemptions, 0);
  EXPECT_EQ(first.events->tokens(), PlainAnswer(older));
  EXPECT_EQ(second.events->tokens(), PlainAnswer(younger));
  for (const Stream* const stream : {&first, &second}) {
    EXPECT_GT(stream->report().rounds, 15);
    EXPECT_EQ(stream->report().accepted_tokens, stream->report().drafted_tokens);
  }
}

void ExpectRoomFor(const char* const drafter) {
  EngineOptions options;
  const models::ModelSpec spec = Rig::Make(kHybrid, {})->engine->spec();
  options.draft_memory_bytes = 5 * spec.page_bytes + spec.page_bytes / 2 + spec.state_bytes;
  const auto rig = Rig::Make(kHybrid, options);
  const Request slow = Drafted(250, 60, "noop");  // Takes four of these pages and the state.
  const Stream reader = Submit(*rig, slow, /*bound=*/6);
  for (int i = 0; i < 5; ++i) rig->engine->RunOneStep();
  Request request = Drafted(61, 200);
  request.speculation.drafter = drafter;
  const Stream other = Submit(*rig, request);
  while (other.events->ends() == 0) rig->engine->RunOneStep();
  EXPECT_GT(WithoutMemory(*rig), 40);
  EXPECT_GT(other.report().rounds, 10);  // A view that nobody asks for stays for as many calls.
  EXPECT_EQ(other.events->tokens(), PlainAnswer(request));
  while (reader.events->ends() == 0) {
    rig->engine->Unpause(reader.id);
    rig->engine->RunOneStep();
  }
  EXPECT_EQ(reader.events->tokens(), PlainAnswer(slow));
}

// On one level or two, for a sequence on either.
TEST(CompressedKvDrafter, AViewThatNobodyAsksForMakesRoom) {
  for (const char* const drafter : {"compressed_kv", "ngram+compressed_kv"}) ExpectRoomFor(drafter);
}

TEST(CompressedKvDrafter, LogsOfGuessesMakeRoomForViews) {
  EngineOptions options;
  const models::ModelSpec spec = Rig::Make(kHybrid, {})->engine->spec();
  const int64_t view_bytes = 5 * spec.page_bytes + spec.state_bytes;
  options.draft_memory_bytes = view_bytes + spec.page_bytes / 2 + spec.StateLogBytes(8);
  const auto rig = Rig::Make(kHybrid, options);
  Request guessed = Drafted(250, 60, "noop");
  guessed.speculation.drafter = "ngram+compressed_kv";
  guessed.speculation.draft_tokens = 8;
  guessed.sampling.allowed_token_ids = {TokenId(5), TokenId(9)};  // Runs of three recur at once.
  const Stream reader = Submit(*rig, guessed, /*bound=*/25);
  while (reader.events->events() < 25 && rig->engine->RunOneStep()) {
  }
  ASSERT_GT(rig->engine->Stats().speculation.drafter_bytes, view_bytes);
  // When nobody has asked for the reader's view for as many calls, this one's takes six pages and the state.
  const Request request = Drafted(265, 110, "noop");
  const Stream other = Submit(*rig, request);
  while (other.events->ends() == 0) rig->engine->RunOneStep();
  EXPECT_GT(other.report().rounds, 5);
  EXPECT_EQ(other.events->tokens(), PlainAnswer(request));
  rig->engine->Cancel(reader.id);
  rig->engine->RunOneStep();
  EXPECT_EQ(rig->engine->Stats().speculation.drafter_bytes, 0);
}

TEST(CompressedKvDrafter, ItsRequestsNameACompressorAndOthersDoNot) {
  const auto rig = Rig::Make(kHybrid, {});
  const auto refused = [&](const Request::Speculation& speculation) {
    Request request = Drafted(10, 4);
    request.speculation = speculation;
    return rig->engine->Submit(request, std::make_shared<Collector>()).status().field();
  };
  const auto on = [](const char* const compressor, const std::optional<float> kv_budget) {
    return Request::Speculation{
        .drafter = "compressed_kv", .draft_tokens = {}, .compressor = compressor, .kv_budget = kv_budget};
  };
  EXPECT_EQ(refused(on("", {})), "kv_policy.compressor");
  EXPECT_EQ(refused(on("snapkv", 0.5F)), "kv_policy.compressor");
  EXPECT_EQ(refused(on("k8v4", 0.5F)), "kv_policy.kv_budget");
  EXPECT_EQ(refused(on("centroid", {})), "kv_policy.kv_budget");
  EXPECT_EQ(refused(on("centroid", 0.0F)), "kv_policy.kv_budget");
  EXPECT_EQ(refused({.drafter = "ngram", .draft_tokens = {}, .compressor = "k8v4", .kv_budget = {}}),
            "kv_policy.compressor");
  EXPECT_EQ(refused({.drafter = "ngram", .draft_tokens = {}, .compressor = {}, .kv_budget = 0.5F}),
            "kv_policy.kv_budget");
}

}  // namespace
}  // namespace invar::engine
