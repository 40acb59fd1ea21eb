// The law over a transfer: a prefix that another engine of equal weights computed gives the bits of a cold run here, on
// real models: prompts around the boundaries of pages and of prefill chunks, with anything from nothing to everything
// cached on either side, in chunks that cut pages and states anywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
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

using kernels::kPageTokens;
using testing::AssetFolder;
using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::RandomTokens;
using testing::TinyModel;
using Tokens = std::vector<TokenId>;

constexpr int32_t kPrefillChunk = 48;

class Instance {
 public:
  explicit Instance(const std::string& model, PrefixSource* const prefixes = nullptr)
      : tiny_(LoadTinyModel(model, {.backend = "cpu",
                                    .isa = {},
                                    .activations = kernels::DType::kBf16,
                                    .threads = 1,
                                    .max_batch_tokens = 64,
                                    .max_logits_rows = 8})
                  .value()) {
    EngineOptions options;
    options.max_batch_tokens = kPrefillChunk;
    options.prefill_chunk_tokens = kPrefillChunk;
    options.max_logits_rows = 8;
    options.max_pages = 64;
    options.max_running = 2;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
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

Request Plain(Tokens prompt, const std::string& salt) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = 3;
  request.output.logprobs = 4;
  request.cache.salt = salt;  // A tree of its own.
  return request;
}

// Serves a part of the prompt, so that it is cached.
void Warm(Instance& instance, const Tokens& prompt, const int32_t tokens, const std::string& salt) {
  if (tokens == 0) return;
  Request request = Plain({prompt.begin(), prompt.begin() + tokens}, salt);
  request.stopping.max_tokens = 0;
  instance.Run(std::move(request));
}

class TransferLaw : public ::testing::TestWithParam<std::string> {};

TEST_P(TransferLaw, BitsAreThoseOfAColdRunWhateverIsCachedOnEitherSide) {
  DirectSource source({.credit_bytes = 8192, .chunk_bytes = 5000});
  Instance producer(GetParam());
  Instance consumer(GetParam(), &source);
  Instance cold(GetParam());
  source.Serve(producer.engine());
  const int32_t vocabulary = producer.engine().spec().vocabulary_size;
  int combinations = 0;
  int transfers = 0;
  const int32_t page = kPageTokens;
  for (const int32_t length : {2, 3, kPrefillChunk, kPrefillChunk + 1, kPrefillChunk + 2, page - 1, page, page + 1,
                               page + 2, 2 * page, 2 * page + 1, 2 * page + 2, 3 * page + 1, 3 * page + 30}) {
    const Tokens prompt = RandomTokens(length, vocabulary, static_cast<uint64_t>(length));
    Request reference = Plain(prompt, "");
    reference.cache.bypass_read = reference.cache.bypass_write = true;
    const std::vector<uint32_t> bits = BitsOf(*cold.Run(std::move(reference)));
    for (const int32_t here : {0, 1, length / 2, length - 1}) {
      for (const int32_t there : {0, length / 3, length}) {
        const std::string salt = std::to_string(combinations) + " of " + std::to_string(length) + "/" +
                                 std::to_string(here) + "/" + std::to_string(there);
        Warm(consumer, prompt, here, salt);
        Warm(producer, prompt, there, salt);
        Request request = Plain(prompt, salt);
        request.transfer.allowed = true;
        const auto events = consumer.Run(std::move(request), &source);
        EXPECT_EQ(BitsOf(*events), bits) << salt;
        const PrefixReuse& reuse = events->finished()->reuse;
        ++combinations;
        transfers += reuse.transferred_tokens > 0 ? 1 : 0;
        EXPECT_EQ(reuse.tier == "peer", reuse.transferred_tokens > 0) << salt;
        if (here == 0) {
          // The last prompt token runs here; a warm producer may leave a page's worth to run.
          EXPECT_LE(reuse.transferred_tokens, length - 1) << salt;
          EXPECT_GE(reuse.transferred_tokens, there == 0 ? length - 1 : length - 1 - page) << salt;
          EXPECT_EQ(reuse.computed_tokens, length - reuse.transferred_tokens) << salt;
        }
      }
    }
  }
  EXPECT_EQ(combinations, 168) << "and with the models below more than 500";
  EXPECT_GT(transfers, combinations / 2);
  const TransferStats stats = consumer.engine().Stats().transfer;
  EXPECT_EQ(stats.begun, stats.landed);
  EXPECT_GE(stats.landed, transfers);
  EXPECT_GT(stats.bytes, 0);
}

// What is given away of a prompt, layer by layer.
class GivenAway final : public EventSink {
 public:
  bool Push(TokenEvent event) override {
    if (auto* const layers = std::get_if<PrefixLayersEvent>(&event); layers != nullptr) {
      ++events;
      for (LayerPart& part : layers->parts) parts.push_back(std::move(part));
    }
    has_ended = has_ended || std::holds_alternative<FinishedEvent>(event);
    return true;
  }
  int events = 0;
  std::vector<LayerPart> parts;
  bool has_ended = false;
};

// Of a long prompt every layer goes out when a forward has passed it, whatever the steps are cut by; what went out is
// what the cache holds at the end.
TEST_P(TransferLaw, LayersGoOutWhileAStepStillRuns) {
  Instance producer(GetParam());
  const models::ModelSpec& spec = producer.engine().spec();
  const std::vector<LayerBytes> layers = LayersOf(spec);
  for (const int32_t length : {kStreamTokens - 1, kStreamTokens, kStreamTokens + kPageTokens + 5}) {
    const Tokens prompt = RandomTokens(length, spec.vocabulary_size, static_cast<uint64_t>(length));
    const std::string salt = std::to_string(length);
    Warm(producer, prompt, length / 3, salt);
    Request request = Plain(prompt, salt);
    request.output = {};
    request.stopping.max_tokens = 0;
    request.live_export = RawExport{.first_page = 2};
    const auto given = std::make_shared<GivenAway>();
    ASSERT_TRUE(producer.engine().Submit(request, given).ok());
    int of_the_last_step = 0;
    while (!given->has_ended) {
      const int before = given->events;
      producer.engine().RunOneStep();
      if (given->events > before) of_the_last_step = given->events - before;
    }
    const bool within = length - 2 * kPageTokens >= kStreamTokens;
    EXPECT_EQ(of_the_last_step, within ? spec.attention_layers + spec.recurrent_layers : 1) << length;
    // As an image of pages and state.
    const auto pages = static_cast<size_t>((length + kPageTokens - 1) / kPageTokens - 2);
    std::vector<std::vector<std::byte>> kv(pages, std::vector<std::byte>(static_cast<size_t>(spec.page_bytes)));
    std::vector<std::byte> state(static_cast<size_t>(spec.state_bytes));
    std::vector<size_t> next(layers.size());
    for (const LayerPart& part : given->parts) {
      const auto index = static_cast<size_t>(part.layer);
      int64_t page_offset = 0;
      int64_t state_offset = 0;
      for (size_t i = 0; i < index; ++i) {
        page_offset += layers[i].page;
        state_offset += layers[i].state;
      }
      for (auto from = part.kv.begin(); from != part.kv.end(); from += layers[index].page) {
        ASSERT_LT(next[index], pages);
        std::copy_n(from, layers[index].page, kv[next[index]++].begin() + page_offset);
      }
      std::ranges::copy(part.state, state.begin() + state_offset);
    }
    std::optional<cache::PrefixImage> image;
    ASSERT_TRUE(producer.engine()
                    .CopyCached({.scope = {.tenant = {}, .salt = salt, .provenance = {}},
                                 .tokens = prompt,
                                 .tokens_min = length,
                                 .first_page = 2},
                                [&](std::optional<cache::PrefixImage> copy) { image = std::move(copy); })
                    .ok());
    producer.engine().RunOneStep();
    ASSERT_TRUE(image.has_value()) << length;
    EXPECT_EQ(kv, image->pages) << length;
    EXPECT_EQ(state, image->state) << length;
  }
}

// A long prompt that is run on the other side, through the wire's words; and whatever frame of it is cut off, comes
// twice or is damaged, the bits are those of a run here.
TEST_P(TransferLaw, ALongPromptHasItsBitsWhateverBecomesOfItsFrames) {
  DirectSource source({.credit_bytes = int64_t{1} << 22, .chunk_bytes = 40'000});
  Instance producer(GetParam());
  Instance consumer(GetParam(), &source);
  Instance cold(GetParam());
  source.Serve(producer.engine());
  const Tokens prompt = RandomTokens(kStreamTokens + 100, producer.engine().spec().vocabulary_size, 1);
  const std::vector<uint32_t> bits = BitsOf(*cold.Run(Plain(prompt, "")));
  const auto pull = [&](const std::string& salt) {
    Request request = Plain(prompt, salt);
    request.transfer.allowed = true;
    const auto events = consumer.Run(std::move(request), &source);
    EXPECT_EQ(BitsOf(*events), bits) << salt;
    return events->finished()->reuse.transferred_tokens;
  };
  EXPECT_EQ(pull("whole"), kStreamTokens + 99);
  const int frames = source.frames_sent();
  EXPECT_GT(frames, producer.engine().spec().attention_layers + producer.engine().spec().recurrent_layers);
  int at = 0;
  for (const Fate fate : {Fate::kCuts, Fate::kTwice, Fate::kArrives}) {
    for (int turn = 0; turn < 3; ++turn) {
      at = (at + frames / 3 + 1) % frames;
      source.tamper = [&](const int index, ProducerFrame& frame) {
        if (index != at) return Fate::kArrives;
        auto* const chunk = std::get_if<ChunkFrame>(&frame);
        if (chunk != nullptr && fate == Fate::kArrives) chunk->bytes[chunk->bytes.size() / 2] ^= 1;
        return fate;
      };
      const int32_t tokens = pull(std::to_string(static_cast<int>(fate)) + " at " + std::to_string(at));
      if (fate == Fate::kCuts) {
        EXPECT_EQ(tokens, 0) << at;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TransferLaw,
                         ::testing::Values(AssetFolder("tiny-hybrid"), GoldenFolder("qwen3_5_moe"),
                                           GoldenFolder("qwen3_next"), GoldenFolder("qwen3")),
                         [](const auto& p) { return testing::TestNameOf(p.param); });

}  // namespace
}  // namespace invar::engine
