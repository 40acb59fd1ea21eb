// The law over a run elsewhere: where a request's tokens come from its producer while the prefix is on its way, and
// from here once it has come, all its bits are those of a run here, on real models: whenever the prefix comes, and
// whatever becomes of it or of the run.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "kernels/numerics.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/engine/transfer_rig.h"
#include "tests/support/tiny_model.h"

namespace invar::engine {
namespace {

using testing::AssetFolder;
using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::RandomTokens;
using testing::TinyModel;
using Tokens = std::vector<TokenId>;

constexpr int32_t kOutput = 12;

class Instance {
 public:
  explicit Instance(const std::string& model, PrefixSource* const prefixes = nullptr, const WantedView& view = {})
      : tiny_(LoadTinyModel(model, {.backend = "cpu",
                                    .isa = {},
                                    .activations = kernels::DType::kBf16,
                                    .threads = 1,
                                    .max_batch_tokens = 64,
                                    .max_logits_rows = 8})
                  .value()) {
    EngineOptions options;
    options.max_batch_tokens = 48;
    options.prefill_chunk_tokens = 48;
    options.max_logits_rows = 8;
    options.max_pages = 64;
    options.max_running = 2;
    options.draft_tokens_max = 4;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    options.transfer.runs_there = true;
    options.transfer.view = view;
    engine_ = Engine::Create(options, std::move(tiny_.model), nullptr, clock_, {}, prefixes).value();
  }
  Engine& engine() { return *engine_; }

  std::shared_ptr<Collector> Run(Request request, DirectSource* const source = nullptr) {
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(engine_->Submit(std::move(request), events).ok());
    for (int steps = 0; events->ends() == 0 && steps < 10'000; ++steps) {
      engine_->RunOneStep();
      if (source != nullptr) source->Work();
    }
    EXPECT_TRUE(events->finished().has_value());
    return events;
  }

 private:
  TinyModel tiny_;
  const RealClock clock_;
  std::unique_ptr<Engine> engine_;
};

Request Asked(Tokens prompt, const float temperature) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = temperature;
  request.sampling.top_p = 0.95F;
  request.sampling.repetition_penalty = 1.1F;
  request.sampling.presence_penalty = 0.3F;
  request.sampling.seed = 7;
  request.stopping.max_tokens = kOutput;
  request.output.logprobs = 3;
  return request;
}

class RemoteLaw : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<uint32_t> Cold(Request request) {
    request.cache.bypass_read = request.cache.bypass_write = true;
    return BitsOf(*cold_.Run(std::move(request)));
  }
  Instance cold_{GetParam()};
};

TEST_P(RemoteLaw, BitsAreThoseOfARunHereWheneverThePrefixComes) {
  const int32_t page = kernels::kPageTokens;
  int combinations = 0;
  int wholly_there = 0;
  int both = 0;
  for (const int64_t frames : {int64_t{1}, int64_t{4}, int64_t{64}}) {
    DirectSource source({.credit_bytes = 8192, .chunk_bytes = 5000, .frames_per_step = frames});
    Instance producer(GetParam());
    Instance consumer(GetParam(), &source);
    source.Serve(producer.engine());
    for (const int32_t length : {2, 3, page - 1, page, page + 1, 2 * page + 1, 3 * page + 30}) {
      for (const float temperature : {0.0F, 1.0F}) {
        const Tokens prompt = RandomTokens(length, producer.engine().spec().vocabulary_size, length);
        Request request = Asked(prompt, temperature);
        request.cache.salt = std::to_string(combinations);
        request.transfer.allowed = true;
        const auto events = consumer.Run(request, &source);
        ++combinations;
        EXPECT_EQ(BitsOf(*events), Cold(request)) << frames << " of " << length;
        const PrefixReuse& reuse = events->finished()->reuse;
        wholly_there += reuse.transfer_mode == "verify" ? 1 : 0;
        both += reuse.transfer_mode == "raw+verify" ? 1 : 0;
        EXPECT_EQ(reuse.transferred_tokens > 0, reuse.transfer_mode == "raw+verify") << reuse.transfer_mode;
        ExpectNothingHeld(consumer.engine(), producer.engine(), source);
      }
    }
  }
  EXPECT_EQ(combinations, 42);
  EXPECT_EQ(wholly_there + both, combinations);
  EXPECT_GT(wholly_there, 3);
  EXPECT_GT(both, 3);
}

// A view of the prefix comes before it, and guesses made on it go where the run is: they change steps and no bit.
TEST_P(RemoteLaw, BitsAreThoseOfARunHereWhateverIsDraftedOnAViewThatCameFirst) {
  const int32_t page = kernels::kPageTokens;
  int64_t accepted = 0;
  int combinations = 0;
  for (const WantedView& view : {WantedView{.compressor = "noop"}, WantedView{.compressor = "kivi2"},
                                 WantedView{.compressor = "streaming", .kv_budget = 0.3F}}) {
    DirectSource source({.credit_bytes = 8192, .chunk_bytes = 5000, .frames_per_step = 1});
    Instance producer(GetParam());
    Instance consumer(GetParam(), &source, view);
    source.Serve(producer.engine());
    for (const int32_t length : {2, 3, page - 1, page, page + 1, 2 * page + 1, 3 * page + 30}) {
      for (const float temperature : {0.0F, 1.0F}) {
        Request request = Asked(RandomTokens(length, producer.engine().spec().vocabulary_size, length), temperature);
        request.cache.salt = std::to_string(combinations);
        request.transfer.allowed = true;
        const auto events = consumer.Run(request, &source);
        ++combinations;
        EXPECT_EQ(BitsOf(*events), Cold(request)) << view.compressor << " of " << length;
        ExpectNothingHeld(consumer.engine(), producer.engine(), source);
      }
    }
    const TransferStats stats = consumer.engine().Stats().transfer;
    EXPECT_GT(stats.remote_views, 3) << view.compressor;
    EXPECT_GT(stats.remote_drafted, 10) << view.compressor;
    EXPECT_GT(producer.engine().Stats().speculation.rounds, 0) << view.compressor;
    // On all that there is, the model guesses as it goes on.
    if (view.compressor == "noop") {
      EXPECT_EQ(stats.remote_accepted, stats.remote_drafted);
    }
    accepted += stats.remote_accepted;
  }
  EXPECT_EQ(combinations, 42);
  EXPECT_GT(accepted, 30);
}

// Whatever becomes of a view: the run goes on, with drafts or without.
TEST_P(RemoteLaw, AViewThatIsLostOrDamagedCostsNoBit) {
  Request request = Asked(RandomTokens(100, 60, 1), 1.0F);
  request.transfer.allowed = true;
  const std::vector<uint32_t> cold = Cold(request);
  for (const bool is_lost : {true, false}) {
    for (int moment = 0; moment < 6; ++moment) {
      DirectSource source({.credit_bytes = 8192, .chunk_bytes = 5000, .frames_per_step = 1});
      source.tamper_view = [&](const int index, ProducerFrame& frame) {
        if (index != moment) return true;
        if (auto* const chunk = std::get_if<ChunkFrame>(&frame)) chunk->bytes[0] ^= 1;
        if (auto* const manifest = std::get_if<ManifestFrame>(&frame)) ++manifest->view_bytes[0];
        if (auto* const commit = std::get_if<CommitFrame>(&frame)) commit->root[0] ^= 1;
        return !is_lost;
      };
      Instance producer(GetParam());
      Instance consumer(GetParam(), &source, {.compressor = "kivi4"});
      source.Serve(producer.engine());
      EXPECT_EQ(BitsOf(*consumer.Run(request, &source)), cold) << moment;
      ExpectNothingHeld(consumer.engine(), producer.engine(), source);
      EXPECT_EQ(consumer.engine().Stats().transfer.remote_views, source.views_brought());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RemoteLaw,
                         ::testing::Values(AssetFolder("tiny-hybrid"), GoldenFolder("qwen3_5_moe"),
                                           GoldenFolder("qwen3_next"), GoldenFolder("qwen3")),
                         [](const auto& p) { return testing::TestNameOf(p.param); });

}  // namespace
}  // namespace invar::engine
