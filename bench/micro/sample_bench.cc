// What choosing the tokens of a step takes that decodes so many sequences: all by the engine thread, and spread over
// the compute threads (engine/loop/sampled_rows.h), in turn. Logits lie in memory as a forward leaves them. The best of
// several runs counts, since a shared machine only ever adds time.
//   build/release/bin/sample_bench [rows]      default: 16

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/cores.h"
#include "base/split_mix64.h"
#include "base/worker_pool.h"
#include "bench/micro/best_seconds.h"
#include "engine/loop/sampled_rows.h"

namespace invar::bench {
namespace {

using engine::Sequence;

constexpr int32_t kColumns = 248320;

struct Sink final : engine::EventSink {
  bool Push(engine::TokenEvent) override { return true; }
};

struct Case {
  const char* name;
  float temperature = 0.0F;
  float top_p = 1.0F;
  float presence_penalty = 0.0F;
};

// One step: each sequence wants the token behind its only one.
struct Rows {
  Rows(const int64_t rows, const Case& of_case) : logits(static_cast<size_t>(rows) * kColumns) {
    SplitMix64 random(1);
    // Sums of four even draws: close enough to a bell.
    for (float& logit : logits) {
      logit = 0.0F;
      for (int i = 0; i < 4; ++i) logit += static_cast<float>(random.Next() >> 40) * 0x1p-22F - 2.0F;
    }
    for (int64_t i = 0; i < rows; ++i) {
      engine::Request request;
      request.prompt = {TokenId(1)};
      request.sampling.temperature = of_case.temperature;
      request.sampling.top_p = of_case.top_p;
      request.sampling.presence_penalty = of_case.presence_penalty;
      request.sampling.seed = static_cast<uint64_t>(i);
      sequences.push_back(std::make_unique<Sequence>(SequenceId(i), std::move(request), std::make_shared<Sink>(), 1,
                                                     nullptr, nullptr, nullptr, TimeNs{0}));
      of.push_back(sequences.back().get());
      results.push_back({.span = {.sequence = SequenceId(i), .length = 1, .logits_rows = 1},
                         .logits = {logits.data() + i * kColumns, 1, kColumns, kColumns}});
    }
  }
  double Seconds(engine::SampledRows& sampled) const {
    return BestSeconds(15, [&] { sampled.Begin(results, of); });
  }
  std::vector<float> logits;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<const Sequence*> of;
  std::vector<engine::SpanResult> results;
};

void Run(const int64_t rows) {
  const kernels::RowSampler sampler = kernels::RowSampler::Create({}).value();
  WorkerPool alone(1);
  WorkerPool pool(ComputeCores());
  engine::SampledRows by_one(sampler, &alone, kColumns);
  engine::SampledRows by_all(sampler, &pool, kColumns);
  const Case cases[] = {{.name = "greedy"},
                        {.name = "t1", .temperature = 1.0F},
                        {.name = "t1_top_p0.8", .temperature = 1.0F, .top_p = 0.8F},
                        {.name = "t1_presence", .temperature = 1.0F, .presence_penalty = 1.0F}};
  for (const Case& of : cases) {
    const Rows step(rows, of);
    for (int round = 0; round < 2; ++round) {
      const double one = step.Seconds(by_one);
      const double all = step.Seconds(by_all);
      std::printf("Sample/%s/rows%ld_ids%d  1 thread %7.3f ms  %d threads %7.3f ms\n", of.name, rows, kColumns,
                  1e3 * one, pool.threads(), 1e3 * all);
    }
  }
}

}  // namespace
}  // namespace invar::bench

int main(const int argc, char** argv) {
  invar::bench::Run(argc > 1 ? std::atoi(argv[1]) : 16);
  return 0;
}
