// invar bench model: decode and prefill of a whole model as shares of this machine's limits, probed in the same run.
// Decode must read all packed weights, the KV of its context, and read and write the recurrent state: its limit is read
// bandwidth. Prefill multiplies: 2 x weights used x tokens, plus attention: its limit is the bf16-dot peak.
// Probes run between the measurements and both keep their best, so that a moving neighbour hits both alike.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "models/random_model.h"
#include "tools/invar/command.h"
#include "tools/invar/limit_probe.h"
#include "tools/invar/local_model.h"
#include "tools/invar/parse.h"
#include "tools/invar/progress_bar.h"

namespace invar::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string shape;
  LocalModelOptions local;
  std::vector<int32_t> batches = {1, 2, 4, 16};
  std::vector<int32_t> contexts = {128};
  std::vector<int32_t> prefills = {512, 2048};
  double seconds = 2.0;  // Measured time of one decode case.
  bool beside_busy_thread = false;
  bool as_json = false;
};

constexpr int32_t kChunkTokens = 512;
constexpr int32_t kDecodeStepsMax = 256;
constexpr int32_t kStepsBetweenProbes = 8;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds since the kernel started this process; its clock ticks every 10 ms.
double SecondsSinceProcessStart() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  // Fields after the command's name, which may hold spaces: the 20th of them is the start time in ticks.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double started = std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - started;
}

// Bytes one decode step of `batch` sequences must move.
double DecodeBytes(const models::ModelSpec& spec, const int32_t batch, const int32_t context) {
  const double per_sequence =
      static_cast<double>(spec.work.kv_bytes_per_position) * context + 2.0 * static_cast<double>(spec.state_bytes);
  return static_cast<double>(spec.work.weight_bytes) + batch * per_sequence;
}

double PrefillFlops(const models::ModelSpec& spec, const int32_t tokens) {
  const double matrices = static_cast<double>(spec.work.matmul_flops - spec.work.head_flops) * tokens;
  const double positions = 0.5 * tokens * (tokens + 1.0);
  return matrices + static_cast<double>(spec.work.head_flops) +
         positions * static_cast<double>(spec.work.attention_flops_per_position);
}

// A process that computes without end at nice 10, as a neighbour on the same cores would, while it lives. A process of
// its own: threads of one process may be scheduled as one group.
class BusyNeighbour {
 public:
  BusyNeighbour() : process_(fork()) {
    if (process_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpriority(PRIO_PROCESS, 0, 10);
    for (volatile uint64_t count = 0;;) count = count + 1;
  }
  ~BusyNeighbour() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  BusyNeighbour(const BusyNeighbour&) = delete;
  BusyNeighbour& operator=(const BusyNeighbour&) = delete;

  bool runs() const { return process_ > 0; }

 private:
  const pid_t process_;
};

class Bench {
 public:
  Bench(LocalModel& local, const Options& options, LimitProbe& probe)
      : local_(local), options_(options), probe_(probe) {}

  // Best step over the measured time. KV of the context is zero: what is read takes as long whatever it holds.
  StatusOr<double> DecodeSeconds(const int32_t batch, const int32_t context) {
    if (Status s = local_.Allocate(batch, context + kDecodeStepsMax); !s.ok()) return s;
    const TokenId token(1);
    double best = INFINITY;
    const double start = Now();
    for (int32_t step = 0; step < kDecodeStepsMax && (step < 4 || Now() - start < options_.seconds); ++step) {
      std::vector<models::ForwardSpan> spans;
      for (int32_t s = 0; s < batch; ++s) spans.push_back(local_.Span(s, {&token, 1}, context - 1 + step, 1));
      const double before = Now();
      local_.model().Forward(local_.memory(), spans);
      if (step > 0) best = std::min(best, Now() - before);  // The first one touches memory for the first time.
      if (step % kStepsBetweenProbes != 0) continue;
      if (Status s = MeasureRead(batch, context); !s.ok()) return s;
    }
    return best;
  }

  // As much at a stretch as such a step reads.
  Status MeasureRead(const int32_t batch, const int32_t context) {
    return probe_.MeasureRead(static_cast<int64_t>(DecodeBytes(local_.model().spec(), batch, context)));
  }

  // Mean step over the measured time: a neighbour takes turns, so the best step would be one that it did not disturb.
  StatusOr<double> MeanDecodeSeconds(const int32_t context) {
    if (Status s = local_.Allocate(1, context + kDecodeStepsMax); !s.ok()) return s;
    const TokenId token(1);
    double start = 0.0;
    int32_t step = 0;
    for (; step < kDecodeStepsMax && (step < 4 || Now() - start < options_.seconds); ++step) {
      if (step == 1) start = Now();  // The first one touches memory for the first time.
      const models::ForwardSpan span = local_.Span(0, {&token, 1}, context - 1 + step, 1);
      local_.model().Forward(local_.memory(), {&span, 1});
    }
    return (Now() - start) / (step - 1);
  }

  StatusOr<double> PrefillSeconds(const int32_t tokens) {
    std::vector<TokenId> ids;
    for (int32_t i = 0; i < tokens; ++i) ids.emplace_back(i * 7919 % local_.model().spec().vocabulary_size);
    double best = INFINITY;
    for (int run = 0; run < 2; ++run) {
      if (Status s = local_.Allocate(1, tokens); !s.ok()) return s;
      const double before = Now();
      for (int32_t begin = 0; begin < tokens; begin += kChunkTokens) {
        const int32_t rows = std::min(kChunkTokens, tokens - begin);
        const models::ForwardSpan span =
            local_.Span(0, std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)), begin,
                        begin + rows == tokens ? 1 : 0);
        local_.model().Forward(local_.memory(), {&span, 1});
      }
      best = std::min(best, Now() - before);
      if (Status s = probe_.MeasurePeak(); !s.ok()) return s;
    }
    return best;
  }

 private:
  LocalModel& local_;
  const Options& options_;
  LimitProbe& probe_;
};

struct Measured {
  int32_t batch_or_tokens;
  int32_t context;
  double seconds;
};

// Rates of batch 1 alone, beside a busy thread, and alone again: the better of the two counts as the rate alone.
Status MeasureBesideBusyThread(const int32_t context, Bench& bench, Json& json) {
  double alone = INFINITY;
  double beside = INFINITY;
  for (const bool busy : {false, true, false}) {
    std::optional<BusyNeighbour> neighbour;
    if (busy) neighbour.emplace();
    if (busy && !neighbour->runs()) return Unavailable("no process for the busy thread could be started");
    StatusOr<double> seconds = bench.MeanDecodeSeconds(context);
    if (!seconds.ok()) return seconds.status();
    double& best = busy ? beside : alone;
    best = std::min(best, *seconds);
  }
  json["beside_busy_thread"] = {{"context", context},
                                {"nice", 10},
                                {"alone_tokens_per_s", 1.0 / alone},
                                {"tokens_per_s", 1.0 / beside},
                                {"kept", alone / beside}};
  return OkStatus();
}

void PrintTable(const Json& json) {
  fmt::print("{} with {} threads ({}): {:.1f} GB/s read, {:.0f} Gflop/s bf16\n", json["shape"].get<std::string>(),
             json["threads"].get<int>(), json["numerics"].get<std::string>(), json["limits"]["read_gbps"].get<double>(),
             json["limits"]["bf16_gflops"].get<double>());
  if (json.contains("start_s")) fmt::print("start to first token {:.3f} s\n", json["start_s"].get<double>());
  for (const Json& row : json["decode"]) {
    fmt::print("decode  batch {:3} context {:6}: {:9.1f} tokens/s, {:5.1f} % of bandwidth\n", row["batch"].get<int>(),
               row["context"].get<int>(), row["tokens_per_s"].get<double>(),
               100 * row["share_of_bandwidth"].get<double>());
  }
  if (json.contains("beside_busy_thread")) {
    const Json& row = json["beside_busy_thread"];
    fmt::print("decode  batch   1 beside a busy thread: {:.1f} tokens/s, alone {:.1f}: {:.1f} % kept\n",
               row["tokens_per_s"].get<double>(), row["alone_tokens_per_s"].get<double>(),
               100 * row["kept"].get<double>());
  }
  for (const Json& row : json["prefill"]) {
    fmt::print("prefill {:6} tokens: {:9.1f} tokens/s, {:5.1f} % of peak\n", row["tokens"].get<int>(),
               row["tokens_per_s"].get<double>(), 100 * row["share_of_peak"].get<double>());
  }
}

Status Measure(const Options& options, LocalModel& local, Json& json) {
  const models::ModelSpec& spec = local.model().spec();
  const int32_t longest =
      std::max(*std::max_element(options.contexts.begin(), options.contexts.end()) + kDecodeStepsMax,
               *std::max_element(options.prefills.begin(), options.prefills.end()));
  if (longest > spec.max_sequence_tokens) {
    return InvalidArgument(fmt::format("wanted at most {} tokens a sequence, as the model allows, found {}",
                                       spec.max_sequence_tokens, longest));
  }
  LimitProbe probe(local.backend());
  if (Status s = probe.MeasurePeak(); !s.ok()) return s;
  Bench bench(local, options, probe);
  ProgressBar bar("measuring");
  std::vector<Measured> decodes;
  std::vector<Measured> prefills;
  const auto total = static_cast<int64_t>(options.batches.size() * options.contexts.size() + options.prefills.size());
  for (const int32_t context : options.contexts) {
    for (const int32_t batch : options.batches) {
      StatusOr<double> seconds = bench.DecodeSeconds(batch, context);
      if (!seconds.ok()) return seconds.status();
      decodes.push_back({batch, context, *seconds});
      bar.Show(static_cast<int64_t>(decodes.size()), total);
    }
  }
  if (options.beside_busy_thread) {
    if (Status s = MeasureBesideBusyThread(options.contexts.front(), bench, json); !s.ok()) return s;
  }
  for (const int32_t tokens : options.prefills) {
    StatusOr<double> seconds = bench.PrefillSeconds(tokens);
    if (!seconds.ok()) return seconds.status();
    prefills.push_back({tokens, 0, *seconds});
    bar.Show(static_cast<int64_t>(decodes.size() + prefills.size()), total);
  }
  const kernels::MachineLimits limits = probe.limits();
  json["limits"] = {{"read_gbps", limits.read_gbps}, {"bf16_gflops", limits.bf16_gflops}};
  for (const Measured& m : decodes) {
    json["decode"].push_back({{"batch", m.batch_or_tokens},
                              {"context", m.context},
                              {"tokens_per_s", m.batch_or_tokens / m.seconds},
                              {"share_of_bandwidth", DecodeBytes(spec, m.batch_or_tokens, m.context) / m.seconds /
                                                         (limits.read_gbps * 1e9)}});
  }
  for (const Measured& m : prefills) {
    json["prefill"].push_back(
        {{"tokens", m.batch_or_tokens},
         {"tokens_per_s", m.batch_or_tokens / m.seconds},
         {"share_of_peak", PrefillFlops(spec, m.batch_or_tokens) / m.seconds / (limits.bf16_gflops * 1e9)}});
  }
  return OkStatus();
}

Status Run(Options options) {
  options.local.max_batch_tokens =
      std::max(kChunkTokens, *std::max_element(options.batches.begin(), options.batches.end()));
  options.local.max_logits_rows = *std::max_element(options.batches.begin(), options.batches.end());
  std::string made;  // Removed at the end.
  if (!options.shape.empty()) {
    made = (std::filesystem::temp_directory_path() / "invar-bench.XXXXXX").string();
    if (mkdtemp(made.data()) == nullptr) return Unavailable(made + ": cannot be made");
    options.local.folder = made;
  }
  const auto remove = [](const std::string* folder) {
    std::error_code error;
    if (!folder->empty()) std::filesystem::remove_all(*folder, error);
  };
  const std::unique_ptr<const std::string, decltype(remove)> cleanup(&made, remove);
  if (!made.empty()) {
    ProgressBar bar("writing weights");
    const Status written = models::MakeRandomModel(
        {.shape = options.shape,
         .folder = made,
         .seed = 1,
         .progress = [&bar](const int64_t done, const int64_t total) { bar.Show(done, total); }});
    if (!written.ok()) return written;
  }
  StatusOr<LocalModel> local = LocalModel::Load(options.local);
  if (!local.ok()) return local.status();
  const int threads = options.local.threads > 0 ? options.local.threads : AvailableThreads();
  Json json = {{"shape", options.shape.empty() ? options.local.folder : options.shape},
               {"threads", threads},
               {"numerics", local->model().spec().numerics_id},
               {"isa", std::string(local->backend().isa())},
               {"limits", Json::object()},
               {"decode", Json::array()},
               {"prefill", Json::array()}};
  if (made.empty()) {
    if (Status s = local->Allocate(1, 1); !s.ok()) return s;
    const TokenId token(1);
    const models::ForwardSpan span = local->Span(0, {&token, 1}, 0, 1);
    local->model().Forward(local->memory(), {&span, 1});
    json["start_s"] = SecondsSinceProcessStart();
  }
  if (Status s = Measure(options, *local, json); !s.ok()) return s;
  if (options.as_json) {
    std::printf("%s\n", json.dump().c_str());
  } else {
    PrintTable(json);
  }
  return OkStatus();
}

}  // namespace

int RunBenchModel(int argc, char** argv) {
  Options options;
  CLI::App app("Decode and prefill as shares of the limits of what computes, this machine's cores or a device.",
               "invar bench model");
  CLI::Option* shape = app.add_option("--shape", options.shape, "random weights in this shape (see make-model)");
  CLI::Option* model = app.add_option("--model", options.local.folder, "model folder");
  shape->excludes(model);
  app.add_option("--batch", options.batches, "sequences decoded at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--context", options.contexts, "tokens each sequence holds")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--prefill", options.prefills, "prompt lengths")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  AddLocalModelOptions(app, options.local);
  app.add_option("--seconds", options.seconds, "measured time of one decode case")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--beside-busy-thread", options.beside_busy_thread,
               "also: decode of batch 1 beside a foreign thread that is always busy, at nice 10");
  app.add_flag("--json", options.as_json, "one JSON object");
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  if (options.shape.empty() == options.local.folder.empty()) {
    std::fputs("invar bench model: wanted --shape NAME or --model DIR\n", stderr);
    return kExitUsage;
  }
  return ExitOf("bench model", Run(options));
}

}  // namespace invar::tools
