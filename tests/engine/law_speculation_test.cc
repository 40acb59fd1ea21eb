// The law through speculation, on real models: tokens and the raw bits of every logit and log-probability of a request
// that speculates are those of its plain run, and whenever a forward begins, state and full KV pages are bytes that
// plain decoding passes through too. Drafters that look up the prompt and that err as told, drafts of 1 to 64 tokens
// and of as many as pay, alone and in company, greedy and sampled, with cancellations and with preemptions into
// poisoned memory; then a next turn resumes from what each left.
#include <gtest/gtest.h>

#include "tests/engine/speculation_rig.h"

namespace invar::engine {
namespace {

constexpr int32_t kOutputTokens = 40;

bool HasHead(const Rig& rig) { return rig.engine->spec().mtp.served(); }

// Prompts of a few repeated phrases, which look-ups find something in; lengths around a page.
std::vector<Request> MakeRequests(const int32_t count, const Sampling& sampling, const int32_t vocabulary) {
  std::vector<Request> requests(static_cast<size_t>(count));
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    const std::vector<TokenId> phrase = testing::RandomTokens(7, vocabulary, 31 + i);
    const size_t length = std::vector<size_t>{20, 33, 61, 50, 40}[i % 5];
    while (request.prompt.size() < length) request.prompt.push_back(phrase[request.prompt.size() % phrase.size()]);
    request.stopping.max_tokens = kOutputTokens;
    request.sampling.temperature = sampling.temperature;
    request.sampling.top_p = sampling.top_p;
    request.sampling.seed = 1000 + i;
    if (i % 4 == 1) request.sampling.repetition_penalty = 1.1F;
    if (i % 3 == 2) request.output.prompt_logprobs = 0;
    request.output.logprob_bits = true;
    request.output.logprobs = static_cast<int32_t>(i % 3);
  }
  return requests;
}

class SpeculationLaw : public ::testing::TestWithParam<Subject> {};

TEST_P(SpeculationLaw, BitsAreThoseOfPlainDecoding) {
  constexpr int32_t kMost = 17;
  int64_t answers = 0;
  int64_t notes = 0;
  int64_t preemptions = 0;
  SpeculationStats sum;
  for (const Sampling& sampling : kSamplings) {
    const int32_t vocabulary = Rig::Make(GetParam(), {})->vocabulary();
    const Plain plain = RunPlain(GetParam(), MakeRequests(kMost, sampling, vocabulary));
    for (const int32_t draft : {1, 4, 16, 64, 0}) {  // 0: as many as pay.
      for (const int32_t count : {1, 3, kMost}) {
        SCOPED_TRACE(std::string(sampling.name) + ", drafts of " + std::to_string(draft) + ", " +
                     std::to_string(count) + " together");
        EngineOptions options;
        options.max_running = count + 1;
        options.max_pages = count == 1 ? 4 : count + 4;  // Two pages each at the end: not all of them fit.
        const auto owned = Rig::Make(GetParam(), options);
        Rig& rig = *owned;
        std::vector<Request> requests = MakeRequests(count, sampling, vocabulary);
        std::vector<std::shared_ptr<Collector>> events;
        const auto submit = [&](const Request& request, const std::vector<TokenId>& answer) {
          events.push_back(std::make_shared<Collector>());
          const SequenceId id = rig.engine->Submit(request, events.back()).value();
          rig.truths[id] = {.tokens = request.prompt, .agreement_percent = 85};
          rig.truths[id].tokens.insert(rig.truths[id].tokens.end(), answer.begin(), answer.end());
          return id;
        };
        for (size_t i = 0; i < requests.size(); ++i) {
          const char* const real = HasHead(rig) && i % 4 != 3 ? "mtp" : "ngram";
          requests[i].speculation.drafter = i % 2 == 0 && !(HasHead(rig) && i % 4 == 0) ? sim::kDialledDrafter : real;
          if (draft > 0) requests[i].speculation.draft_tokens = draft;
          submit(requests[i], plain.tokens[i]);
        }
        // A neighbour that is cancelled in the middle of its rounds.
        const SequenceId gone = submit(requests[0], plain.tokens[0]);
        for (int32_t step = 0; step < 9; ++step) rig.engine->RunOneStep();
        rig.engine->Cancel(gone);
        rig.RunUntilIdle();
        for (size_t i = 0; i < requests.size(); ++i) {
          ASSERT_EQ(BitsOf(*events[i]), plain.bits[i]) << "request " << i;
          Request turn = NextTurn(requests[i], plain.tokens[i]);
          submit(turn, {});
          rig.RunUntilIdle();
          ASSERT_EQ(BitsOf(*events.back()), plain.next_bits[i]) << "next turn of request " << i;
          answers += 2;
        }
        for (const uint64_t hash : rig.seen) {
          ASSERT_TRUE(plain.seen.contains(hash)) << "a state or a page that plain decoding does not pass through";
        }
        notes += static_cast<int64_t>(rig.seen.size());
        const EngineStats stats = rig.engine->Stats();
        preemptions += stats.preemptions;
        sum.rounds += stats.speculation.rounds;
        sum.drafted_tokens += stats.speculation.drafted_tokens;
        sum.accepted_tokens += stats.speculation.accepted_tokens;
      }
    }
  }
  std::printf("%s: %lld answers and %lld states equal; %lld preemptions, %lld rounds, %lld of %lld drafted accepted\n",
              GetParam().name, static_cast<long long>(answers), static_cast<long long>(notes),
              static_cast<long long>(preemptions), static_cast<long long>(sum.rounds),
              static_cast<long long>(sum.accepted_tokens), static_cast<long long>(sum.drafted_tokens));
  EXPECT_GT(preemptions, 20);
  EXPECT_GT(sum.accepted_tokens, 1000);
  EXPECT_LT(sum.accepted_tokens, sum.drafted_tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, SpeculationLaw, ::testing::ValuesIn(SpeculationSubjects()),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace invar::engine
