// invar bench kernels: every hot kernel as a share of the limit that binds it, on this machine, now.
// Probes run between the kernels and both keep their best, so that a moving neighbour hits both alike.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/worker_pool.h"
#include "config/isa_names.h"
#include "kernels/backend.h"
#include "kernels/cpu/probe.h"
#include "kernels/sample.h"
#include "tools/invar/command.h"
#include "tools/invar/parse.h"

namespace invar::tools {
namespace {

using namespace kernels;  // NOLINT: this file is about nothing else.

enum class Limit { kRead, kProducts, kLanes };

struct Case {
  std::string name;
  std::string shape;
  Limit limit;
  double bytes;  // Moved a call.
  double work;   // Flops a call; lane operations for Limit::kLanes.
  std::function<void()> run;
  double best_s = INFINITY;
};

struct AlignedFree {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, AlignedFree>;

Memory Allocate(const int64_t bytes) {
  Memory memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  Check(memory != nullptr, "memory for the benchmark", bytes);
  return memory;
}

// Small numbers that are neither zero nor denormal, without the cost of a generator.
void Fill(float* values, const int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7919 % 1021 - 510) * 1e-3F;
}
void FillBf16(uint16_t* values, const int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<uint16_t>(0x3c00 + i * 7919 % 509 + (i % 3 == 0 ? 0x8000 : 0));
}

struct Suite {
  Suite(Backend& b) : backend(b) {}

  std::shared_ptr<std::vector<float>> Floats(const int64_t count) {
    auto values = std::make_shared<std::vector<float>>(count);
    Fill(values->data(), count);
    return values;
  }
  // Rows in the backend's activation type.
  Activations Rows(const int64_t rows, const int64_t cols) {
    const DType type = backend.numerics().activations;
    memory.push_back(Allocate(rows * cols * BytesOf(type)));
    if (type == DType::kF32) {
      Fill(static_cast<float*>(memory.back().get()), rows * cols);
    } else {
      FillBf16(static_cast<uint16_t*>(memory.back().get()), rows * cols);
    }
    return {memory.back().get(), type, rows, cols, cols};
  }
  F32View View(const int64_t rows, const int64_t cols) {
    memory.push_back(Allocate(rows * cols * 4));
    Fill(static_cast<float*>(memory.back().get()), rows * cols);
    return {static_cast<float*>(memory.back().get()), rows, cols, cols};
  }

  void AddMatmul(const int64_t n, const int64_t k, const std::vector<int64_t>& row_counts, const Limit limit) {
    const int64_t bytes = backend.PackedBytes(n, k, DType::kBf16);
    memory.push_back(Allocate(bytes));
    FillBf16(static_cast<uint16_t*>(memory.back().get()), bytes / 2);
    const PackedMatrix weight{memory.back().get(), DType::kBf16, n, k};
    const int64_t most = *std::max_element(row_counts.begin(), row_counts.end());
    const Activations x = Rows(most, k);
    const F32View out = View(most, n);
    for (const int64_t m : row_counts) {
      cases.push_back({"matmul", std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k), limit,
                       static_cast<double>(bytes), 2.0 * static_cast<double>(m * n * k), [this, x, weight, out, m] {
                         Activations rows = x;
                         rows.rows = m;
                         backend.Linear(rows, weight, {}, LinearMode::kStore, out.Rows(0, m));
                       }});
    }
  }

  // `rows` query rows at the end of `context` positions; several sequences, so that their pages exceed the caches.
  void AddAttention(const int64_t context, const int64_t rows, const Limit limit) {
    const AttentionShape shape{8, 2, 256, 0, 0.0625F};
    const int64_t page_bytes = backend.KvPageBytes(shape.kv_heads, shape.head_dim);
    const int64_t page_count = (context + kPageTokens - 1) / kPageTokens;
    const int64_t sequences = limit == Limit::kRead ? 4 : 1;
    memory.push_back(Allocate(sequences * page_count * page_bytes));
    auto* arena = static_cast<std::byte*>(memory.back().get());
    if (backend.numerics().kv == DType::kF32) {
      Fill(reinterpret_cast<float*>(arena), sequences * page_count * page_bytes / 4);
    } else {
      FillBf16(reinterpret_cast<uint16_t*>(arena), sequences * page_count * page_bytes / 2);
    }
    auto pages = std::make_shared<std::vector<int32_t>>(page_count);
    for (int64_t i = 0; i < page_count; ++i) (*pages)[i] = static_cast<int32_t>(i);
    auto spans = std::make_shared<std::vector<KvSpan>>();
    for (int64_t s = 0; s < sequences; ++s) {
      spans->push_back({static_cast<int32_t>(s * rows),
                        static_cast<int32_t>(rows),
                        static_cast<int32_t>(context - rows),
                        {arena + s * page_count * page_bytes, page_bytes, 0, *pages}});
    }
    Activations q = Rows(sequences * rows, shape.heads * shape.head_dim);
    const Activations out = Rows(sequences * rows, shape.heads * shape.head_dim);
    const double seen =
        static_cast<double>(rows) * (static_cast<double>(context) - 0.5 * static_cast<double>(rows - 1));
    cases.push_back({"attention",
                     std::to_string(rows) + " rows at " + std::to_string(context) + ", 8/2 heads of 256" +
                         (sequences > 1 ? ", " + std::to_string(sequences) + " sequences" : ""),
                     limit, static_cast<double>(sequences * page_count * page_bytes),
                     4.0 * static_cast<double>(sequences) * seen * shape.heads * shape.head_dim,
                     [this, shape, q, out, spans, pages] {
                       backend.Attention(
                           {.shape = shape, .q = q, .spans = *spans, .gate = {}, .gate_head_stride = 0, .out = out});
                     }});
  }

  void AddDelta(const int64_t tokens) {
    const DeltaShape shape{16, 16, 128, 128};
    const int64_t width = 2 * 16 * 128 + 16 * 128;
    auto state = Floats(16 * 128 * 128);
    const F32View qkv = View(tokens, width);
    const F32View b = View(tokens, 16);
    const F32View a = View(tokens, 16);
    auto gates = Floats(16);
    const F32View out = View(tokens, 16 * 128);
    const double elements = 16.0 * 128 * 128;
    // Bound: four vector operations an element and token (scale, update, two sums).
    cases.push_back({"delta_scan", std::to_string(tokens) + " tokens, 16 heads of 128x128", Limit::kLanes, elements * 8,
                     elements * 4 * static_cast<double>(tokens), [this, shape, state, qkv, b, a, gates, out, tokens] {
                       const StateSpan span{0, static_cast<int32_t>(tokens), nullptr, state->data()};
                       backend.DeltaScan({shape, qkv, b, a, *gates, *gates, {&span, 1}, out});
                     }});
  }

  void AddRowOperations(const int64_t rows) {
    const int64_t hidden = 1024;
    const F32View x = View(rows, hidden);
    auto weight = Floats(hidden);
    const Activations out = Rows(rows, hidden);
    const double out_bytes = static_cast<double>(rows * hidden * BytesOf(out.dtype));
    cases.push_back({"rms_norm", std::to_string(rows) + "x1024", Limit::kRead,
                     4.0 * static_cast<double>(rows * hidden) + out_bytes, 0.0,
                     [this, x, weight, out] { backend.RmsNorm(x, *weight, 1e-6F, out); }});
    const F32View gate_up = View(rows, 2 * 3584);
    const Activations inner = Rows(rows, 3584);
    cases.push_back({"swiglu", std::to_string(rows) + "x3584", Limit::kRead,
                     static_cast<double>(rows * 3584) * (8.0 + static_cast<double>(BytesOf(inner.dtype))), 0.0,
                     [this, gate_up, inner] { backend.SwiGlu(gate_up, inner); }});
    const F32View mixed = View(rows, 6144);
    const F32View conv_out = View(rows, 6144);
    auto taps = Floats(6144 * 4);
    auto state = Floats(3 * 6144);
    cases.push_back({"causal_conv", std::to_string(rows) + "x6144", Limit::kRead,
                     static_cast<double>(rows * 6144) * 8.0, 0.0, [this, mixed, conv_out, taps, state, rows] {
                       const StateSpan span{0, static_cast<int32_t>(rows), state->data(), nullptr};
                       backend.CausalConv({mixed, *taps, 4, {&span, 1}, conv_out});
                     }});
  }

  void AddSampling() {
    auto logits = Floats(248320);
    for (float& logit : *logits) logit *= 16.0F;
    const auto add = [&](const char* name, const SampleSettings& settings) {
      cases.push_back({name, "248320", Limit::kRead, 4.0 * 248320, 0.0, [logits, settings] {
                         Check(SampleRow(*logits, settings, {1, 0, 1}) >= 0, "a token was chosen");
                       }});
    };
    add("sample_greedy", {.temperature = 0.0F});
    add("sample_top_k", {.temperature = 0.8F, .top_k = 50});
    add("sample_top_p", {.temperature = 1.0F, .top_p = 0.95F});
    add("sample_all", {.temperature = 1.0F});
  }

  Backend& backend;
  std::vector<Memory> memory;
  std::vector<Case> cases;
};

double SecondsOf(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double ShareOf(const Case& c, const cpu::Probe& probe) {
  switch (c.limit) {
    case Limit::kRead:
      return c.bytes / c.best_s * 1e-9 / probe.read_gbps();
    case Limit::kProducts:
      return c.work / c.best_s * 1e-9 / probe.bf16_gflops();
    case Limit::kLanes:
      return c.work / c.best_s * 1e-9 / probe.lane_gops();
  }
  return 0.0;
}

nlohmann::ordered_json ReportOf(const Backend& backend, const cpu::Probe& probe, const std::vector<Case>& cases) {
  nlohmann::ordered_json report;
  report["backend"] = backend.name();
  report["isa"] = backend.isa();
  report["threads"] = backend.pool().threads();
  report["limits"] = {
      {"read_gbps", probe.read_gbps()}, {"bf16_gflops", probe.bf16_gflops()}, {"lane_gops", probe.lane_gops()}};
  report["kernels"] = nlohmann::ordered_json::array();
  for (const Case& c : cases) {
    const double flops = c.limit == Limit::kLanes ? c.work * 2 : c.work;
    report["kernels"].push_back({{"name", c.name},
                                 {"shape", c.shape},
                                 {"seconds", c.best_s},
                                 {"gbps", c.bytes / c.best_s * 1e-9},
                                 {"gflops", flops / c.best_s * 1e-9},
                                 {"limit", c.limit == Limit::kRead       ? "read"
                                           : c.limit == Limit::kProducts ? "bf16"
                                                                         : "lanes"},
                                 {"share", ShareOf(c, probe)}});
  }
  return report;
}

void PrintTable(const nlohmann::ordered_json& report) {
  std::printf("limits (%d threads, %s): read %.1f GB/s, products %.1f GFLOP/s\n", report["threads"].get<int>(),
              report["isa"].get<std::string>().c_str(), report["limits"]["read_gbps"].get<double>(),
              report["limits"]["bf16_gflops"].get<double>());
  std::printf("%-14s %-44s %12s %9s %9s  %s\n", "kernel", "shape", "us", "GB/s", "GFLOP/s", "share of limit");
  for (const auto& k : report["kernels"]) {
    std::printf("%-14s %-44s %12.1f %9.1f %9.1f  %5.1f %% of %s\n", k["name"].get<std::string>().c_str(),
                k["shape"].get<std::string>().c_str(), k["seconds"].get<double>() * 1e6, k["gbps"].get<double>(),
                k["gflops"].get<double>(), k["share"].get<double>() * 100.0, k["limit"].get<std::string>().c_str());
  }
}

struct Arguments {
  std::string filter;
  std::string backend = "cpu";
  std::string isa;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 5;
  bool json = false;
};

void AddCases(Suite& suite) {
  suite.AddMatmul(65536, 1024, {1, 2, 4}, Limit::kRead);
  suite.AddMatmul(3584, 1024, {16, 64, 256}, Limit::kProducts);
  suite.AddMatmul(1024, 3584, {16, 256}, Limit::kProducts);
  suite.AddAttention(16384, 1, Limit::kRead);
  suite.AddAttention(4096, 256, Limit::kProducts);
  for (const int64_t tokens : {1, 8, 32, 512}) suite.AddDelta(tokens);
  suite.AddRowOperations(512);
  suite.AddSampling();
}

// Best of `rounds`; in a round the probe comes right before each kernel, which then runs for about 20 ms.
void RunRounds(std::vector<Case>& cases, const int rounds, cpu::Probe& probe) {
  for (int round = 0; round < rounds; ++round) {
    probe.Measure();
    for (Case& c : cases) {
      if (c.limit == Limit::kRead) {
        probe.MeasureRead();
      } else {
        probe.MeasurePeak();
      }
      double spent = 0.0;
      for (int i = 0; i < 200 && (spent < 0.02 || i < 3); ++i) {
        const double seconds = SecondsOf(c.run);
        c.best_s = std::min(c.best_s, seconds);
        spent += seconds;
      }
    }
  }
}

}  // namespace

int RunBenchKernels(int argc, char** argv) {
  Arguments args;
  CLI::App app{
      "Kernels as shares of this machine's limits: memory reads and the inner product's peak, both measured between "
      "the "
      "runs.",
      "invar bench kernels"};
  app.add_option("--filter", args.filter, "only kernels whose 'name shape' matches this regular expression");
  app.add_option("--backend", args.backend, "backend to time")->check(CLI::IsMember({"cpu"}));
  app.add_option("--isa", args.isa, "instruction set; default: the best here")->check(CLI::IsMember(kIsaNames));
  app.add_option("--threads", args.threads, "compute threads")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", args.rounds, "rounds; the best of all counts")->check(CLI::Range(1, 1000));
  app.add_flag("--json", args.json, "print JSON");
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  WorkerPool pool(args.threads, Pinning::kWorkers);
  StatusOr<std::unique_ptr<Backend>> backend = MakeBackend({args.backend, args.isa, DType::kBf16}, pool);
  if (!backend.ok()) {
    std::fprintf(stderr, "invar bench kernels: %s\n", backend.status().ToString().c_str());
    return kExitUsage;
  }
  Suite suite(**backend);
  AddCases(suite);
  if (!args.filter.empty()) {
    try {
      const std::regex wanted(args.filter);
      std::erase_if(suite.cases, [&](const Case& c) { return !std::regex_search(c.name + " " + c.shape, wanted); });
    } catch (const std::regex_error& error) {
      std::fprintf(stderr, "invar bench kernels: --filter: %s\n", error.what());
      return kExitUsage;
    }
  }
  const std::string isa((*backend)->isa());
  cpu::Probe probe(args.threads, isa.c_str());
  RunRounds(suite.cases, args.rounds, probe);
  const nlohmann::ordered_json report = ReportOf(**backend, probe, suite.cases);
  if (args.json) {
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    PrintTable(report);
  }
  return kExitOk;
}

}  // namespace invar::tools
