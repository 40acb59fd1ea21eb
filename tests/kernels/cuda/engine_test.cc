// The engine on the emulated backend, which chooses its tokens: every bit of an answer is the one that the host would
// have chosen from the same logits, alone and in company, with drafts that are right and wrong.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <string_view>

#include "base/clock.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/emulation.h"
#include "tests/engine/answer_bits.h"
#include "tests/support/tiny_model.h"
#include "tests/support/wrapped_model.h"
#include "tools/sim/dialled_drafter.h"

namespace invar::engine {
namespace {

constexpr int32_t kRequests = 8;
constexpr int32_t kOutputTokens = 7;

struct Rig {
  WorkerPool pool{1};
  std::unique_ptr<kernels::Backend> backend;
  SimulatedClock clock;
  sim::DraftTruths truths;
  std::unique_ptr<Engine> engine;

  explicit Rig(const bool host) {
    backend = kernels::cuda::MakeCudaBackend(kernels::cuda::MakeEmulatedDevice(), nullptr, kernels::DType::kBf16, pool)
                  .value();
    models::ModelOptions load;
    load.folder = testing::GoldenFolder("qwen3_5");
    load.max_logits_rows = 64;
    load.pack_to_file = false;
    std::unique_ptr<models::Model> model = models::MakeModel(load, *backend).value();
    EngineOptions options;
    options.drafters.push_back({sim::kDialledDrafter, [this, ids = model->spec().vocabulary_size](const auto&) {
                                  return sim::MakeDialledDrafter(truths, ids, 5);
                                }});
    if (host) model = std::make_unique<testing::WrappedModel>(std::move(model));
    engine = Engine::Create(options, std::move(model), nullptr, clock).value();
  }
};

// Between them, all that a choice depends on.
std::vector<Request> MakeRequests(const int32_t vocabulary) {
  std::vector<Request> requests(kRequests);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    SamplingParams& sampling = request.sampling;
    request.prompt = testing::RandomTokens(5 + static_cast<int32_t>(i), vocabulary, i);
    request.stopping.max_tokens = kOutputTokens;
    sampling.temperature = i % 4 == 0 ? 0.0F : 0.9F;
    sampling.seed = 1000 + i;
    sampling.output_index = static_cast<uint32_t>(i % 2);
    if (i % 3 == 1) sampling.top_p = 0.8F;
    if (i % 4 == 2) sampling.top_k = 12;
    if (i == 7) sampling.min_p = 0.2F;
    if (i % 2 == 0) {
      sampling.repetition_penalty = 1.4F;
      sampling.presence_penalty = 0.3F;
      sampling.frequency_penalty = 0.6F;
    }
    if (i % 3 == 0) sampling.logit_bias = {{3, 1.5F}, {4, -2.0F}, {9, 2.0F}};
    if (i == 5) sampling.allowed_token_ids = {TokenId(1), TokenId(2), TokenId(9), TokenId(30), TokenId(31)};
    if (i == 5 || i == 6) {
      request.stopping.min_tokens = 4;
      request.stopping.stop_token_ids = {TokenId(9), TokenId(2)};
    }
    request.output.logprob_bits = true;
    request.output.logprobs = static_cast<int32_t>(i % 4);
    if (i == 3) request.output.prompt_logprobs = 1;
  }
  return requests;
}

struct Answers {
  std::vector<std::vector<uint32_t>> bits;
  std::vector<std::vector<TokenId>> tokens;
  SpeculationStats speculation;
};

// `known`: drafts come from there, in part.
Answers RunTogether(Rig& rig, const Answers* const known = nullptr) {
  std::vector<Request> requests = MakeRequests(rig.engine->spec().vocabulary_size);
  std::vector<std::shared_ptr<Collector>> events;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (known != nullptr) {
      requests[i].speculation.drafter = sim::kDialledDrafter;
      requests[i].speculation.draft_tokens = 3;
    }
    events.push_back(std::make_shared<Collector>());
    const StatusOr<SequenceId> id = rig.engine->Submit(requests[i], events.back());
    EXPECT_TRUE(id.ok());
    if (known == nullptr) continue;
    sim::DraftTruth& truth = rig.truths[*id];
    truth = {.tokens = requests[i].prompt, .agreement_percent = 75};
    truth.tokens.insert(truth.tokens.end(), known->tokens[i].begin(), known->tokens[i].end());
  }
  while (rig.engine->RunOneStep()) rig.clock.Advance(1);
  Answers answers;
  for (const auto& of : events) {
    EXPECT_TRUE(of->finished().has_value());
    answers.bits.push_back(BitsOf(*of));
    answers.tokens.push_back(of->tokens());
  }
  answers.speculation = rig.engine->Stats().speculation;
  return answers;
}

// Whether a kernel that chooses has run since the control was set.
bool DeviceChose() {
  const auto& places = kernels::cuda::emulation::control().places;
  return std::any_of(places.begin(), places.end(), [](const kernels::cuda::Place& place) {
    return std::string_view(place.file).ends_with("choose_rows.cu");
  });
}

TEST(EmulatedEngine, ChoosesWhatTheHostWouldChoose) {
  kernels::cuda::emulation::control() = {.record_places = true};
  Rig host(true);
  const Answers want = RunTogether(host);
  EXPECT_FALSE(DeviceChose());
  Rig device(false);
  const Answers got = RunTogether(device);
  EXPECT_TRUE(DeviceChose());
  EXPECT_EQ(got.bits, want.bits);
  EXPECT_EQ(got.tokens, want.tokens);

  const Answers drafted = RunTogether(device, &want);
  EXPECT_EQ(drafted.bits, want.bits);
  EXPECT_EQ(drafted.tokens, want.tokens);
  EXPECT_GT(drafted.speculation.accepted_tokens, 0);
  EXPECT_LT(drafted.speculation.accepted_tokens, drafted.speculation.drafted_tokens);
  kernels::cuda::emulation::control() = {};
}

}  // namespace
}  // namespace invar::engine
