// What users of other servers met with speculation, as tests of this one: on a small hybrid, whose every answer is
// compared with that of plain decoding. Names start with the fault.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/speculation_rig.h"

namespace invar::engine {
namespace {

const Subject kHybrid{"moe", testing::GoldenFolder("qwen3_5_moe"), kernels::DType::kBf16};

struct Who {
  const char* drafter;
  const char* compressor;
  std::optional<float> kv_budget;
};
constexpr Who kDrafters[] = {{"ngram", "", {}},
                             {sim::kDialledDrafter, "", {}},
                             {"compressed_kv", "noop", {}},
                             {"compressed_kv", "random_drop:recent=8", 0.3F},
                             {"compressed_kv", "streaming:recent=8", 0.3F},
                             {"compressed_kv", "int8:recent=8", {}},
                             {"compressed_kv", "k8v4:recent=8", {}},
                             {"compressed_kv", "kivi4:recent=8", {}},
                             {"compressed_kv", "kivi2:recent=8", {}},
                             {"compressed_kv", "centroid:recent=8", 0.5F}};

Request DraftedBy(Request request, const Who& who, const int32_t draft_tokens) {
  request.speculation = {
      .drafter = who.drafter, .draft_tokens = draft_tokens, .compressor = who.compressor, .kv_budget = who.kv_budget};
  return request;
}

Request Asking(std::vector<TokenId> prompt, const int32_t max_tokens, const float temperature) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = temperature;
  request.sampling.seed = 42;
  request.stopping.max_tokens = max_tokens;
  request.output.logprob_bits = true;
  return request;
}

// A phrase over and over, which drafts are right about, and noise.
std::vector<TokenId> Repeating(const int32_t length, const int32_t vocabulary, const uint64_t seed) {
  const std::vector<TokenId> phrase = testing::RandomTokens(5, vocabulary, seed);
  std::vector<TokenId> tokens;
  while (static_cast<int32_t>(tokens.size()) < length) tokens.push_back(phrase[tokens.size() % phrase.size()]);
  return tokens;
}

struct Pending {
  std::shared_ptr<Collector> events = std::make_shared<Collector>();
  size_t wanted = 0;  // Index of the plain answer.
};
Pending Submit(Rig& rig, const Request& request, const size_t wanted, const std::vector<TokenId>& answer) {
  Pending pending{.wanted = wanted};
  const SequenceId id = rig.engine->Submit(request, pending.events).value();
  rig.truths[id] = {.tokens = request.prompt, .agreement_percent = 100};
  rig.truths[id].tokens.insert(rig.truths[id].tokens.end(), answer.begin(), answer.end());
  return pending;
}

// vllm#39273: drafts of a hybrid accepted, text wrong.
TEST(SpeculationCases, TextIsCorruptedWhileDraftsLookGood) {
  const int32_t vocabulary = Rig::Make(kHybrid, {})->vocabulary();
  std::vector<Request> requests;
  for (const float temperature : {0.0F, 1.0F}) {
    requests.push_back(Asking(Repeating(40, vocabulary, 3), 256, temperature));
    requests.push_back(Asking(testing::RandomTokens(70, vocabulary, 4), 256, temperature));
  }
  const Plain plain = RunPlain(kHybrid, requests);
  int64_t accepted = 0;
  for (int32_t draft = 1; draft <= 8; ++draft) {
    const auto rig = Rig::Make(kHybrid, {});
    std::vector<Pending> all;
    for (size_t who = 0; who < std::size(kDrafters); ++who) {
      const size_t i = (who + static_cast<size_t>(draft)) % requests.size();  // Each meets each.
      all.push_back(Submit(*rig, DraftedBy(requests[i], kDrafters[who], draft), i, plain.tokens[i]));
    }
    rig->RunUntilIdle();
    for (size_t who = 0; who < all.size(); ++who) {
      ASSERT_EQ(BitsOf(*all[who].events), plain.bits[all[who].wanted])
          << kDrafters[who].drafter << " " << kDrafters[who].compressor << ", drafts of " << draft;
    }
    accepted += rig->engine->Stats().speculation.accepted_tokens;
  }
  EXPECT_GT(accepted, 5000);
}

// sglang#31599, #33758, vllm#47616: what lies behind a stop inside an accepted run leaks, or the end is said to be one
// of length. Stop strings: e2e_test, LosslessSpeculation.StopsInsideADraftOnCompressedKv.
TEST(SpeculationCases, TokensBehindAStopInsideADraftLeak) {
  constexpr int32_t kDraft = 8;
  const int32_t vocabulary = Rig::Make(kHybrid, {})->vocabulary();
  const Request whole = Asking(testing::RandomTokens(60, vocabulary, 8), 40, 1.0F);
  const std::vector<TokenId> answer = RunPlain(kHybrid, {whole}).tokens[0];
  std::vector<Request> requests;
  for (int32_t at = 0; at <= kDraft + 1; ++at) {
    Request stopped = whole;
    stopped.stopping.stop_token_ids = {answer[static_cast<size_t>(at)]};
    requests.push_back(stopped);
    for (const int32_t tokens : {at, at + 1, at + 2}) {
      requests.push_back(stopped);
      requests.back().stopping.max_tokens = tokens;
    }
  }
  const Plain plain = RunPlain(kHybrid, requests);
  for (const Who& who : {kDrafters[1], kDrafters[2]}) {
    const auto rig = Rig::Make(kHybrid, {});
    for (size_t i = 0; i < requests.size(); ++i) {
      // The drafter that knows the answer guesses on, behind the stop.
      const Pending pending = Submit(*rig, DraftedBy(requests[i], who, kDraft), i, answer);
      rig->RunUntilIdle();
      const FinishedEvent& finished = *pending.events->finished();
      EXPECT_EQ(BitsOf(*pending.events), plain.bits[i]) << who.drafter << " " << i;
      EXPECT_EQ(finished.completion_tokens, static_cast<int32_t>(plain.tokens[i].size()));
      const bool stopped = !plain.tokens[i].empty() && plain.tokens[i].back() == requests[i].stopping.stop_token_ids[0];
      EXPECT_EQ(finished.reason, stopped ? FinishReason::kStop : FinishReason::kLength) << who.drafter << " " << i;
    }
  }
}

// vllm#53912, LMCache#4984: a run of accepted tokens jumps over a boundary where a state should have been kept.
TEST(SpeculationCases, AnAcceptedRunJumpsOverAPlaceWhereAStateBelongs) {
  const int32_t vocabulary = Rig::Make(kHybrid, {})->vocabulary();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 12; ++i) {
    const int32_t length = (i % 2 == 0 ? 64 : 128) - 14 + i;
    requests.push_back(Asking(testing::RandomTokens(length, vocabulary, 50 + static_cast<uint64_t>(i)), 30, 1.0F));
    if (i % 3 == 0) requests.back().cache.hints = {length + 7};
  }
  const Plain plain = RunPlain(kHybrid, requests);
  // The next turn of each: prompt, answer and five tokens more, cold.
  std::vector<Request> turns;
  for (size_t i = 0; i < requests.size(); ++i) {
    turns.push_back(requests[i]);
    std::vector<TokenId>& prompt = turns.back().prompt;
    prompt.insert(prompt.end(), plain.tokens[i].begin(), plain.tokens[i].end());
    const std::vector<TokenId> more = testing::RandomTokens(5, vocabulary, 70 + i);
    prompt.insert(prompt.end(), more.begin(), more.end());
  }
  const Plain cold = RunPlain(kHybrid, turns);
  const auto rig = Rig::Make(kHybrid, {});
  int64_t reused = 0;
  for (int32_t round = 0; round < 50; ++round) {
    std::vector<Pending> firsts, seconds;
    const auto draft = [&](const Request& request, const int32_t i) {
      const auto at = static_cast<size_t>(round + i);
      return DraftedBy(request, kDrafters[at % std::size(kDrafters)], std::vector{4, 16, 64}[at % 3]);
    };
    for (int32_t i = 0; i < 4; ++i) {
      const size_t at = static_cast<size_t>(4 * round + i) % requests.size();
      firsts.push_back(Submit(*rig, draft(requests[at], i), at, plain.tokens[at]));
    }
    rig->RunUntilIdle();
    for (int32_t i = 0; i < 4; ++i) {
      const size_t at = firsts[static_cast<size_t>(i)].wanted;
      ASSERT_EQ(BitsOf(*firsts[static_cast<size_t>(i)].events), plain.bits[at]) << "round " << round;
      seconds.push_back(Submit(*rig, draft(turns[at], i + 1), at, cold.tokens[at]));
    }
    rig->RunUntilIdle();
    for (const Pending& second : seconds) {
      ASSERT_EQ(BitsOf(*second.events), cold.bits[second.wanted]) << "round " << round;
      reused += second.events->finished()->reuse.state_match_tokens;
    }
  }
  EXPECT_GT(reused, 200 * 50);
}

// vllm#54928, #51812: gates of a batch that mixes drafts with plain rows are gathered by wrong indices.
TEST(SpeculationCases, ABatchOfDraftsPromptsAndPlainRowsMixesThemUp) {
  const int32_t vocabulary = Rig::Make(kHybrid, {})->vocabulary();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 14; ++i) {
    requests.push_back(Asking(testing::RandomTokens(3 + 23 * i % 150, vocabulary, 90 + static_cast<uint64_t>(i)),
                              20 + 3 * i, i % 2 == 0 ? 0.0F : 0.9F));
  }
  const Plain plain = RunPlain(kHybrid, requests);
  EngineOptions options;
  options.prefill_chunk_tokens = 7;
  const auto rig = Rig::Make(kHybrid, options);
  std::vector<Pending> all;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request request = i % 3 == 0 ? requests[i] : DraftedBy(requests[i], kDrafters[i % std::size(kDrafters)], 5);
    all.push_back(Submit(*rig, request, i, plain.tokens[i]));
    for (int32_t step = 0; step < 3; ++step) rig->engine->RunOneStep();
  }
  rig->RunUntilIdle();
  for (const Pending& one : all) EXPECT_EQ(BitsOf(*one.events), plain.bits[one.wanted]) << one.wanted;
}

// vllm#47466: the prompt's last token is taken for one of decoding.
TEST(SpeculationCases, ThePromptsLastTokenIsTakenForADraft) {
  const int32_t vocabulary = Rig::Make(kHybrid, {})->vocabulary();
  std::vector<Request> requests;
  for (const int32_t length : {1, 2, 3, 63, 64, 65, 127, 128, 129}) {
    requests.push_back(
        Asking(testing::RandomTokens(length, vocabulary, 200 + static_cast<uint64_t>(length)), 12, 0.0F));
    requests.back().output.prompt_logprobs = 1;
  }
  const Plain plain = RunPlain(kHybrid, requests);
  for (const int32_t chunk : {1, 64, 512}) {
    EngineOptions options;
    options.prefill_chunk_tokens = chunk;
    const auto rig = Rig::Make(kHybrid, options);
    for (int32_t round = 0; round < 2; ++round) {  // The second one finds all of its prompt cached.
      for (size_t i = 0; i < requests.size(); ++i) {
        const Pending one = Submit(*rig, DraftedBy(requests[i], kDrafters[2 + i % 8], 3), i, plain.tokens[i]);
        rig->RunUntilIdle();
        EXPECT_EQ(BitsOf(*one.events), plain.bits[i]) << chunk << ", prompt of " << requests[i].prompt.size();
      }
    }
  }
}

}  // namespace
}  // namespace invar::engine
