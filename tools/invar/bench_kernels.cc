// invar bench kernels: every hot kernel as a share of the limit that binds it, on this machine, now.
// What a kernel must bring from memory lies beyond every cache: each call takes other matrices, contexts or states,
// together several times the last-level cache. Probes run between the kernels and both keep their best, so that
// a moving neighbour hits both alike.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/worker_pool.h"
#include "config/isa_names.h"
#include "kernels/backend.h"
#include "kernels/cpu/big_memory.h"
#include "kernels/row_chooser.h"
#include "kernels/sample.h"
#include "tools/invar/command.h"
#include "tools/invar/limit_probe.h"
#include "tools/invar/parse.h"

namespace invar::tools {
namespace {

using namespace kernels;  // NOLINT: this file is about nothing else.

// What a call needs at least of each limit.
struct Needs {
  double bytes = 0.0;    // Read from memory; what a cache holds from call to call does not count.
  double flops = 0.0;    // Of the matrix product.
  double updated = 0.0;  // Bytes read and written in place.
  double lanes = 0.0;    // Fused multiply-adds of the recurrence.
};

struct Case {
  std::string name;
  std::string shape;
  Needs needs;
  std::function<void()> run;
  double best_s = INFINITY;
};

// Small numbers that are neither zero nor denormal, without the cost of a generator.
void Fill(float* values, const int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7919 % 1021 - 510) * 1e-3F;
}
void FillBf16(uint16_t* values, const int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<uint16_t>(0x3c00 + i * 7919 % 509 + (i % 3 == 0 ? 0x8000 : 0));
}

// Values that are finite as weights, keys and states alike.
void Fill(std::byte* memory, const int64_t bytes, const DType type) {
  if (type == DType::kF32) {
    Fill(reinterpret_cast<float*>(memory), bytes / 4);
  } else {
    FillBf16(reinterpret_cast<uint16_t*>(memory), bytes / 2);
  }
}

RowMemory Allocate(Backend& backend, const int64_t bytes, const RowUse use) {
  StatusOr<RowMemory> memory = backend.AllocateRows(bytes, use);
  Check(memory.ok(), "memory for the benchmark", bytes);
  return *std::move(memory);
}

// As Fill, wherever the backend's operations find `memory`.
void Send(Backend& backend, std::byte* memory, const int64_t bytes, const DType type) {
  if (!backend.rows_are_apart()) return Fill(memory, bytes, type);
  constexpr int64_t kPiece = int64_t{16} << 20;
  const RowMemory piece = Allocate(backend, kPiece, RowUse::kHostToo);
  Fill(piece.get(), kPiece, type);
  std::vector<CopyPiece> copies;
  for (int64_t at = 0; at < bytes; at += kPiece) {
    copies.push_back({memory + at, piece.get(), std::min(kPiece, bytes - at)});
  }
  backend.Copy(copies);
  backend.Wait();
}

// Hands out parts of the arena, always those that were not used for longest. It is larger than every cache: of a
// device, whose caches are at most 128 MiB today, 1 GiB.
class Arena {
 public:
  explicit Arena(Backend& backend) {
    if (backend.rows_are_apart()) {
      bytes_ = int64_t{1} << 30;
      rows_ = Allocate(backend, bytes_, RowUse::kOperations);
      data_ = rows_.get();
    } else {
      host_.emplace(cpu::UncachedBytes());
      bytes_ = host_->bytes();
      data_ = host_->data();
    }
    Send(backend, data_, bytes_, backend.numerics().kv);
  }

  std::byte* Next(const int64_t bytes) {
    if (next_ + bytes > bytes_) next_ = 0;
    std::byte* const part = data_ + next_;
    next_ += (bytes + 255) / 256 * 256;
    return part;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::optional<cpu::BigMemory> host_;
  RowMemory rows_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t next_ = 0;
};

struct Suite {
  Suite(Backend& b, Arena& a) : backend(b), arena(a) {}

  // As an operation finds them.
  void* Filled(const int64_t bytes, const DType type) {
    memory.push_back(Allocate(backend, bytes, RowUse::kOperations));
    Send(backend, memory.back().get(), bytes, type);
    return memory.back().get();
  }
  std::span<float> Floats(const int64_t count) {
    return {static_cast<float*>(Filled(count * 4, DType::kF32)), static_cast<size_t>(count)};
  }
  // Rows in the backend's activation type.
  Activations Rows(const int64_t rows, const int64_t cols) {
    const DType type = backend.numerics().activations;
    return {Filled(rows * cols * BytesOf(type), type), type, rows, cols, cols};
  }
  F32View View(const int64_t rows, const int64_t cols) {
    return {static_cast<float*>(Filled(rows * cols * 4, DType::kF32)), rows, cols, cols};
  }

  // Where a call finds `bytes` of the arena: always at the same place, or each time where no cache holds them.
  std::function<std::byte*()> Place(const int64_t bytes, const bool cached) {
    if (!cached) return [this, bytes] { return arena.Next(bytes); };
    return [at = arena.Next(bytes)] { return at; };
  }

  // `cached`: the same weights in every call, as in a step of many rows.
  void AddMatmul(const int64_t n, const int64_t k, const std::vector<int64_t>& row_counts, const bool cached) {
    const int64_t bytes = backend.PackedBytes(n, k, DType::kBf16);
    const auto place = Place(bytes, cached);
    const int64_t most = *std::max_element(row_counts.begin(), row_counts.end());
    const Activations x = Rows(most, k);
    const F32View out = View(most, n);
    for (const int64_t m : row_counts) {
      cases.push_back(
          {"matmul",
           std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k),
           {.bytes = cached ? 0.0 : static_cast<double>(bytes), .flops = 2.0 * static_cast<double>(m * n * k)},
           [this, x, out, m, n, k, place] {
             Activations rows = x;
             rows.rows = m;
             const PackedMatrix weight{place(), DType::kBf16, n, k};
             backend.Linear(rows, weight, {}, LinearMode::kStore, out.Rows(0, m));
           }});
    }
  }

  // A decode step of `sequences` on compressed views: a query row behind `slots` slots in a body of `encoding`, with
  // log degrees, and one row. Its time is to be compared with that of dense bodies: `flops` and slots are the same.
  void AddViewAttention(const AttentionShape& shape, const int64_t slots, const int64_t sequences,
                        const KvEncoding encoding) {
    const PageShape page = backend.KvPageShape(shape.kv_heads, shape.head_dim);
    const int64_t page_count = slots / kPageTokens;
    const int64_t body_bytes = page_count * EncodedPageBytes(encoding, page);
    const int64_t tail_bytes = backend.KvPageBytes(shape.kv_heads, shape.head_dim);
    const int64_t bytes = sequences * (body_bytes + tail_bytes);
    const auto place = Place(bytes, false);
    const std::span<float> degrees = Floats(slots * shape.kv_heads);
    auto pages = std::make_shared<std::vector<int32_t>>(1, 0);
    auto spans = std::make_shared<std::vector<KvSpan>>();
    for (int64_t s = 0; s < sequences; ++s) {
      spans->push_back(
          {static_cast<int32_t>(s),
           1,
           static_cast<int32_t>(slots),
           {nullptr, tail_bytes, 0, *pages, {nullptr, static_cast<int32_t>(page_count), encoding, degrees.data()}}});
    }
    const Activations q = Rows(sequences, shape.heads * shape.head_dim);
    const Activations out = Rows(sequences, shape.heads * shape.head_dim);
    cases.push_back({"view_attention",
                     fmt::format("{} x 1 row at {} slots, {}/{} heads of {}, {}", sequences, slots, shape.heads,
                                 shape.kv_heads, shape.head_dim, KvEncodingName(encoding)),
                     {.bytes = static_cast<double>(bytes),
                      .flops = 4.0 * static_cast<double>(sequences * slots) * shape.heads * shape.head_dim},
                     [this, shape, q, out, spans, pages, body_bytes, tail_bytes, place] {
                       std::byte* at = place();
                       for (KvSpan& span : *spans) {
                         span.kv.body.bytes = at;
                         span.kv.arena = at + body_bytes;
                         at += body_bytes + tail_bytes;
                       }
                       backend.Attention(
                           {.shape = shape, .q = q, .spans = *spans, .gate = {}, .gate_head_stride = 0, .out = out});
                     }});
  }

  // `rows` query rows at the end of `context` positions of each of `sequences`. `cached`: the same pages in every call.
  void AddAttention(const int64_t context, const int64_t rows, const int64_t sequences, const bool cached) {
    const AttentionShape shape{8, 2, 256, 0, 0.0625F};
    const int64_t page_bytes = backend.KvPageBytes(shape.kv_heads, shape.head_dim);
    const int64_t page_count = (context + kPageTokens - 1) / kPageTokens;
    const int64_t bytes = sequences * page_count * page_bytes;
    const auto place = Place(bytes, cached);
    auto pages = std::make_shared<std::vector<int32_t>>(page_count);
    for (int64_t i = 0; i < page_count; ++i) (*pages)[i] = static_cast<int32_t>(i);
    auto spans = std::make_shared<std::vector<KvSpan>>();
    for (int64_t s = 0; s < sequences; ++s) {
      spans->push_back({static_cast<int32_t>(s * rows),
                        static_cast<int32_t>(rows),
                        static_cast<int32_t>(context - rows),
                        {nullptr, page_bytes, 0, *pages}});
    }
    Activations q = Rows(sequences * rows, shape.heads * shape.head_dim);
    const Activations out = Rows(sequences * rows, shape.heads * shape.head_dim);
    const double seen =
        static_cast<double>(rows) * (static_cast<double>(context) - 0.5 * static_cast<double>(rows - 1));
    cases.push_back({"attention",
                     std::to_string(rows) + " rows at " + std::to_string(context) + ", 8/2 heads of 256" +
                         (sequences > 1 ? ", " + std::to_string(sequences) + " sequences" : ""),
                     {.bytes = cached ? 0.0 : static_cast<double>(bytes),
                      .flops = 4.0 * static_cast<double>(sequences) * seen * shape.heads * shape.head_dim},
                     [this, shape, q, out, spans, pages, bytes, sequences, place] {
                       std::byte* kv = place();
                       for (int64_t s = 0; s < sequences; ++s) (*spans)[s].kv.arena = kv + s * (bytes / sequences);
                       backend.Attention(
                           {.shape = shape, .q = q, .spans = *spans, .gate = {}, .gate_head_stride = 0, .out = out});
                     }});
  }

  // One sequence. A decode step's few tokens find its state in memory.
  void AddDelta(const int64_t tokens, const bool cached) {
    const DeltaShape shape{16, 16, 128, 128};
    const int64_t width = 2 * 16 * 128 + 16 * 128;
    const F32View qkv = View(tokens, width);
    const F32View b = View(tokens, 16);
    const F32View a = View(tokens, 16);
    const std::span<float> gates = Floats(16);
    const F32View out = View(tokens, 16 * 128);
    const int64_t elements = 16 * 128 * 128;
    const auto place = Place(elements * 4, cached);
    // Four vector operations an element and token (scale, update, two sums). What is needed next can be on its way from
    // memory meanwhile, so the longer of moving and computing binds. A second-level cache binds neither: a core updates
    // a line of it in less than the four cycles that one token's operations take.
    cases.push_back({"delta_scan",
                     std::to_string(tokens) + " tokens, 16 heads of 128x128" + (cached ? ", cached" : ""),
                     {.updated = cached ? 0.0 : static_cast<double>(elements * 4),
                      .lanes = static_cast<double>(elements * 4 * tokens)},
                     [this, shape, qkv, b, a, gates, out, tokens, place] {
                       auto* state = reinterpret_cast<float*>(place());
                       const StateSpan span{0, static_cast<int32_t>(tokens), nullptr, state};
                       backend.DeltaScan({shape, qkv, b, a, gates, gates, {&span, 1}, out});
                     }});
  }

  // Operations that touch every element once. A line that is written is read before; that it goes back to memory later
  // does not count here.
  void AddRowOperations(const int64_t rows) {
    const DType type = backend.numerics().activations;
    const auto add = [&](const char* name, const int64_t in_cols, const int64_t out_cols, const int64_t out_bytes,
                         std::function<void(F32View in, std::byte * out)> run) {
      const int64_t in = rows * in_cols * 4;
      const int64_t bytes = in + rows * out_cols * out_bytes;
      cases.push_back({name,
                       std::to_string(rows) + "x" + std::to_string(out_cols),
                       {.bytes = static_cast<double>(bytes)},
                       [this, rows, in_cols, in, bytes, run] {
                         std::byte* at = arena.Next(bytes);
                         run({reinterpret_cast<float*>(at), rows, in_cols, in_cols}, at + in);
                       }});
    };
    const std::span<float> weight = Floats(1024);
    add("rms_norm", 1024, 1024, BytesOf(type), [this, rows, type, weight](const F32View& in, std::byte* out) {
      backend.RmsNorm(in, weight, 1e-6F, {out, type, rows, 1024, 1024});
    });
    add("swiglu", 2 * 3584, 3584, BytesOf(type), [this, rows, type](const F32View& in, std::byte* out) {
      backend.SwiGlu(in, {out, type, rows, 3584, 3584});
    });
    const std::span<float> taps = Floats(6144 * 4);
    const std::span<float> state = Floats(3 * 6144);
    add("causal_conv", 6144, 6144, 4, [this, rows, taps, state](const F32View& in, std::byte* out) {
      const StateSpan span{0, static_cast<int32_t>(rows), state.data(), nullptr};
      backend.CausalConv({in, taps, 4, {&span, 1}, {reinterpret_cast<float*>(out), rows, 6144, 6144}});
    });
  }

  // Logits lie in the cache that the head wrote them to: no limit is stated.
  void AddSampling() {
    constexpr int32_t kIds = 248320;
    auto logits = std::make_shared<std::vector<float>>(kIds);
    Fill(logits->data(), kIds);
    for (float& logit : *logits) logit *= 16.0F;
    const RowSampler rows = RowSampler::Create(backend.isa()).value();
    const float* there = nullptr;
    if (backend.chooser() != nullptr) {
      memory.push_back(Allocate(backend, kIds * 4, RowUse::kOperations));
      there = reinterpret_cast<const float*>(memory.back().get());
      const RowMemory here = Allocate(backend, kIds * 4, RowUse::kHostToo);
      std::memcpy(here.get(), logits->data(), kIds * 4);
      const CopyPiece piece{memory.back().get(), here.get(), kIds * 4};
      backend.Copy({&piece, 1});
      backend.Wait();
    }
    const auto add = [&](const char* name, const SampleSettings& settings) {
      cases.push_back({name, "248320", {}, [this, rows, logits, there, settings] {
                         if (there == nullptr) {
                           Check(rows.Sample(*logits, settings, {1, 0, 1}) >= 0, "a token was chosen");
                           return;
                         }
                         const RowChoice choice{.logits = there, .settings = settings, .key = {1, 0, 1}};
                         ChosenRow chosen;
                         backend.chooser()->Choose(kIds, kIds, {&choice, 1}, {&chosen, 1});
                         Check(chosen.token >= 0, "a token was chosen");
                       }});
    };
    add("sample_greedy", {.temperature = 0.0F});
    add("sample_top_k", {.temperature = 0.8F, .top_k = 50});
    add("sample_top_p", {.temperature = 1.0F, .top_p = 0.95F});
    add("sample_all", {.temperature = 1.0F});
  }

  Backend& backend;
  Arena& arena;
  std::vector<RowMemory> memory;
  std::vector<Case> cases;
};

double SecondsOf(Case& c, const int calls, Backend& backend) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) c.run();
  backend.Wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Mean of some 20 ms of calls. A device's are launched one behind the other, as in a step, and waited for once.
double MeanSeconds(Case& c, Backend& backend) {
  constexpr double kLongEnough = 0.02;
  if (backend.rows_are_apart()) {
    const double one = SecondsOf(c, 1, backend);
    const int calls = static_cast<int>(std::clamp(kLongEnough / one, 3.0, 1000.0));
    return SecondsOf(c, calls, backend) / calls;
  }
  double spent = 0.0;
  int calls = 0;
  for (; spent < kLongEnough || calls < 3; ++calls) spent += SecondsOf(c, 1, backend);
  return spent / calls;
}

// The limit that binds a call: the one that alone would take longest.
struct Bound {
  const char* limit;
  double seconds;
};

Bound BoundOf(const Needs& needs, const MachineLimits& limits) {
  const Bound bounds[] = {{"read", needs.bytes * 1e-9 / limits.read_gbps},
                          {"update", needs.updated * 1e-9 / limits.update_gbps},
                          {"bf16", needs.flops * 1e-9 / limits.bf16_gflops},
                          {"lanes", needs.lanes * 1e-9 / limits.lane_gops}};
  const Bound* most = std::max_element(std::begin(bounds), std::end(bounds),
                                       [](const Bound& a, const Bound& b) { return a.seconds < b.seconds; });
  return most->seconds > 0.0 ? *most : Bound{"none", 0.0};
}

nlohmann::ordered_json ReportOf(const Backend& backend, const MachineLimits& limits, const Arena& arena,
                                const std::vector<Case>& cases) {
  nlohmann::ordered_json report;
  report["backend"] = backend.name();
  report["numerics"] = backend.numerics().id();
  report["isa"] = backend.isa();
  report["threads"] = backend.pool().threads();
  if (!backend.rows_are_apart()) report["last_level_cache_bytes"] = cpu::LastLevelCacheBytes();
  report["walked_bytes"] = arena.bytes();
  report["limits"] = {{"read_gbps", limits.read_gbps},
                      {"update_gbps", limits.update_gbps},
                      {"bf16_gflops", limits.bf16_gflops},
                      {"lane_gops", limits.lane_gops}};
  report["kernels"] = nlohmann::ordered_json::array();
  for (const Case& c : cases) {
    const Bound bound = BoundOf(c.needs, limits);
    report["kernels"].push_back({{"name", c.name},
                                 {"shape", c.shape},
                                 {"seconds", c.best_s},
                                 {"gbps", (c.needs.bytes + c.needs.updated) / c.best_s * 1e-9},
                                 {"gflops", (c.needs.flops + 2.0 * c.needs.lanes) / c.best_s * 1e-9},
                                 {"limit", bound.limit},
                                 {"share", bound.seconds / c.best_s}});
  }
  return report;
}

void PrintTable(const nlohmann::ordered_json& report) {
  const std::string isa = report["isa"];
  const std::string what = isa.empty() ? report["numerics"].get<std::string>()
                                       : fmt::format("{} threads, {}", report["threads"].get<int>(), isa);
  std::printf("limits (%s): read %.1f GB/s, update %.1f GB/s, products %.1f GFLOP/s\n", what.c_str(),
              report["limits"]["read_gbps"].get<double>(), report["limits"]["update_gbps"].get<double>(),
              report["limits"]["bf16_gflops"].get<double>());
  std::printf("%-14s %-44s %12s %9s %9s  %s\n", "kernel", "shape", "us", "GB/s", "GFLOP/s", "share of limit");
  for (const auto& k : report["kernels"]) {
    std::printf("%-14s %-44s %12.1f %9.1f %9.1f", k["name"].get<std::string>().c_str(),
                k["shape"].get<std::string>().c_str(), k["seconds"].get<double>() * 1e6, k["gbps"].get<double>(),
                k["gflops"].get<double>());
    const std::string limit = k["limit"];
    if (limit != "none") std::printf("  %5.1f %% of %s", k["share"].get<double>() * 100.0, limit.c_str());
    std::printf("\n");
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
  suite.AddMatmul(65536, 1024, {1, 2, 4}, false);
  suite.AddMatmul(3584, 1024, {16, 64, 256, 512}, true);
  suite.AddMatmul(1024, 3584, {16, 256, 512}, true);
  suite.AddAttention(16384, 1, 4, false);
  suite.AddAttention(4096, 256, 1, true);
  for (const AttentionShape& shape : {AttentionShape{9, 3, 64, 0, 0.125F}, AttentionShape{8, 2, 256, 0, 0.0625F}}) {
    for (int e = 0; e < kEncodings; ++e) suite.AddViewAttention(shape, 6144, 8, static_cast<KvEncoding>(e));
  }
  for (const int64_t tokens : {1, 8}) suite.AddDelta(tokens, false);
  for (const int64_t tokens : {1, 8, 32, 512}) suite.AddDelta(tokens, true);
  suite.AddRowOperations(512);
  suite.AddSampling();
}

// Best of `rounds`; in a round the probe comes right before each kernel, which then runs about as long as the probe
// did. Of a round the mean counts, of both: where a host rations bandwidth, the first calls after a pause are faster.
Status RunRounds(Suite& suite, const int rounds, LimitProbe& probe) {
  for (int round = 0; round < rounds; ++round) {
    if (Status s = probe.Measure(); !s.ok()) return s;
    for (Case& c : suite.cases) {
      const std::string_view limit = BoundOf(c.needs, probe.limits()).limit;
      Status measured;
      if (limit == "read") measured = probe.MeasureRead();
      if (limit == "update") measured = probe.MeasureUpdate();
      if (limit == "bf16" || limit == "lanes") measured = probe.MeasurePeak();
      if (!measured.ok()) return measured;
      c.best_s = std::min(c.best_s, MeanSeconds(c, suite.backend));
    }
  }
  return OkStatus();
}

}  // namespace

int RunBenchKernels(int argc, char** argv) {
  Arguments args;
  CLI::App app{
      "Kernels as shares of the limits of what computes, this machine's cores or a device: reading memory, updating "
      "it, and the inner product's peak, all measured in the same run.",
      "invar bench kernels"};
  app.add_option("--filter", args.filter, "only kernels whose 'name shape' matches this regular expression");
  app.add_option("--backend", args.backend, "backend to time")->check(CLI::IsMember({"cpu", "cuda"}));
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
  Arena arena(**backend);
  Suite suite(**backend, arena);
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
  LimitProbe probe(**backend);
  if (Status s = RunRounds(suite, args.rounds, probe); !s.ok()) {
    std::fprintf(stderr, "invar bench kernels: %s\n", s.ToString().c_str());
    return kExitUsage;
  }
  const nlohmann::ordered_json report = ReportOf(**backend, probe.limits(), arena, suite.cases);
  if (args.json) {
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    PrintTable(report);
  }
  return kExitOk;
}

}  // namespace invar::tools
