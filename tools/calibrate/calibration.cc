// Two passes of fitting, one of trying layer by layer, one of judging.
#include "tools/calibrate/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/file.h"
#include "base/fingerprint.h"
#include "base/worker_pool.h"
#include "engine/transfer/scd_choose.h"
#include "engine/transfer/scd_fit.h"
#include "engine/transfer/scd_profile_file.h"
#include "engine/transfer/scd_trim.h"
#include "tools/calibrate/candidates.h"
#include "tools/calibrate/measure.h"
#include "tools/calibrate/pair_reader.h"
#include "tools/calibrate/progress_file.h"
#include "tools/calibrate/windows.h"

namespace invar::calibrate {
namespace {

Status CheckPair(const engine::ScdShape& producer, const engine::ScdShape& consumer, const engine::ScdSide& from,
                 const engine::ScdSide& to) {
  if (producer.hidden != consumer.hidden || producer.layers.size() != consumer.layers.size()) {
    return InvalidArgument(
        fmt::format("--consumer: wanted the producer's architecture, {} layers of hidden size {}, found {} of {}",
                    producer.layers.size(), producer.hidden, consumer.layers.size(), consumer.hidden));
  }
  for (size_t i = 0; i < producer.layers.size(); ++i) {
    if (producer.layers[i] == consumer.layers[i]) continue;
    return InvalidArgument(
        fmt::format("--consumer: layer {}: wanted the heads and kind of the producer's, found others", i));
  }
  if (from.tokenizer != to.tokenizer)
    return InvalidArgument("--consumer: wanted the producer's tokenizer.json, found another");
  return OkStatus();
}

StatusOr<std::vector<TokenId>> ReadTokens(const models::Tokenizer& tokenizer, const std::vector<std::string>& paths) {
  std::vector<TokenId> tokens;
  for (const std::string& path : paths) {
    const StatusOr<std::string> text = ReadFile(path, models::kTextBytesMax);
    if (!text.ok()) return Status(text.status().code(), "--text: " + text.status().message());
    // The operator's own text may hold turns of a chat, so control tokens in it count as such.
    const StatusOr<std::vector<TokenId>> ids =
        tokenizer.Encode(*text, models::ControlTokens::kParse, /*add_special=*/tokens.empty(), {});
    if (!ids.ok()) return Status(ids.status().code(), "--text: " + path + ": " + ids.status().message());
    tokens.insert(tokens.end(), ids->begin(), ids->end());
  }
  return tokens;
}

// All that the sums depend on.
Digest IdentityOf(const engine::ScdProfile& profile, const std::span<const TokenId> tokens,
                  const CalibrateOptions& options) {
  return FingerprintBuilder()
      .AddFramed(profile.producer.fingerprint)
      .AddFramed(profile.producer.numerics_id)
      .AddFramed(profile.consumer.fingerprint)
      .AddFramed(profile.consumer.numerics_id)
      .AddFramed(fmt::format("{} {} {} {} {} {}", engine::kScdVersion, options.prefix_tokens, options.suffix_tokens,
                             options.fit_windows, options.features, options.by_mass))
      .Add(std::as_bytes(tokens))
      .Finish();
}

// With everything that is left open filled in.
CalibrateOptions Settled(CalibrateOptions options, const int64_t tokens, const int64_t model_tokens_max) {
  if (options.prefix_tokens == 0) {
    const int64_t room = std::min(tokens / 10, model_tokens_max) - options.suffix_tokens;
    options.prefix_tokens = static_cast<int32_t>(std::clamp(room, int64_t{2}, kReportedTokens));
  }
  // A tail that is most of the prefix would be judged as a recomputation, and look better than it is of a long one.
  std::erase_if(options.tails, [&](const int32_t tail) { return tail > options.prefix_tokens / 4; });
  if (options.tails.empty()) options.tails = {0};
  return options;
}

class Run {
 public:
  Run(Party& producer, Party& consumer, const CalibrateOptions& options, Windows windows, engine::ScdProfile profile,
      const Digest& identity, const std::function<void(int64_t, int64_t)>& progress)
      : producer_(producer),
        consumer_(consumer),
        options_(options),
        windows_(std::move(windows)),
        progress_file_(options.out + ".progress", identity),
        progress_(progress) {
    out_.profile = std::move(profile);
    out_.prefix_tokens = options.prefix_tokens;
    const engine::ScdFitOptions fit{
        .joint_ranks = JointRanks(shape()), .input_ranks = InputRanks(shape()), .features = options.features};
    for (const engine::ScdLayerShape& layer : shape().layers) fitters_.emplace_back(layer, shape().hidden, fit);
    for (size_t i = 0; i < shape().layers.size(); ++i) plans_.push_back(PlansOf(shape(), i, options));
    for (const std::vector<engine::ScdLayerPlan>& plans : plans_) trials_ += std::ssize(plans);
    const int64_t points = 8 + std::ssize(options.budgets);
    total_ = 2 * std::ssize(windows_.fit) + trials_ * std::ssize(windows_.choose) +
             std::ssize(RecomputedGroups(shape())) * std::ssize(windows_.choose) + points * std::ssize(windows_.judge);
  }

  StatusOr<Calibration> Do() {
    if (Status s = Fit(); !s.ok()) return s;
    const std::vector<std::vector<engine::ScdOption>> measured = TryLayers();
    std::vector<engine::ScdPoint> points = Baselines(shape(), options_);
    points.insert(points.begin() + 1, BestGroup());
    const size_t baselines = points.size();
    for (const double budget : options_.budgets) points.push_back(Choose(measured, budget));
    JudgePoints(points);
    Keep(baselines);
    progress_file_.Remove();
    return std::move(out_);
  }

 private:
  const engine::ScdShape& shape() const { return out_.profile.shape; }
  void Step() {
    if (progress_) progress_(std::min(++done_, total_), total_);
  }

  // --- Fitting ---
  Status Fit() {
    std::vector<std::span<double>> sums;
    for (engine::ScdLayerFitter& fitter : fitters_) {
      for (const std::span<double> sum : fitter.Sums()) sums.push_back(sum);
    }
    Done done = progress_file_.Load(sums);
    out_.resumed = done.pass > 0 || done.windows > 0;
    auto saved = std::chrono::steady_clock::now();
    PairReader reader(producer_, consumer_, options_.by_mass);
    for (; done.pass < 2; done = {done.pass + 1, 0}) {
      if (done.pass == 1) ForLayers([this](const size_t i) { fitters_[i].SolveLinear(); });
      for (; std::cmp_less(done.windows, windows_.fit.size()); ++done.windows) {
        if (std::chrono::steady_clock::now() - saved >= std::chrono::seconds(options_.save_seconds)) {
          if (Status s = progress_file_.Save(done, sums); !s.ok()) return s;
          saved = std::chrono::steady_clock::now();
        }
        reader.Read(windows_.fit[static_cast<size_t>(done.windows)]);
        ForLayers([&](const size_t i) {
          const engine::ScdPairedLayer layer = reader.Layer(i);
          done.pass == 0 ? fitters_[i].AddLinear(layer) : fitters_[i].AddNonlinear(layer);
        });
        Step();
      }
    }
    ForLayers([this](const size_t i) { fitters_[i].SolveNonlinear(); });
    for (engine::ScdLayerFitter& fitter : fitters_) out_.profile.layers.push_back(fitter.fit());
    return OkStatus();
  }

  // Layers are independent, so they may be worked on at once without any sum seeing it.
  void ForLayers(const std::function<void(size_t)>& work) const {
    consumer_.model().backend()->pool().ParallelFor(std::ssize(fitters_), [&](const int64_t i) {
      const FlushDenormals flush;  // Workers do, and the caller takes part.
      work(static_cast<size_t>(i));
    });
  }

  // --- Choosing ---
  // What each way of each layer costs, all others being exact.
  std::vector<std::vector<engine::ScdOption>> TryLayers() {
    std::vector<Trial> trials;
    const std::vector<engine::ScdLayerPlan> raw(shape().layers.size(), {.mode = engine::ScdMode::kRaw});
    for (size_t i = 0; i < plans_.size(); ++i) {
      for (const engine::ScdLayerPlan& plan : plans_[i]) {
        trials.push_back({.point = {.name = "trial", .layers = raw}, .alone = i});
        trials.back().point.layers[i] = plan;
      }
    }
    const std::vector<TrialResult> results =
        Measure(producer_, consumer_, out_.profile, trials, windows_.choose, [this] { Step(); });
    std::vector<std::vector<engine::ScdOption>> options(plans_.size());
    for (size_t t = 0; t < trials.size(); ++t) {
      const size_t layer = *trials[t].alone;
      const engine::ScdLayerPlan& plan = trials[t].point.layers[layer];
      const engine::ScdWork work = ScdWorkOf(out_.profile, consumer_.spec(), trials[t].point, kReportedTokens);
      options[layer].push_back({.bytes = ScdLayerBytes(shape(), trials[t].point, layer, kReportedTokens),
                                .loss = results[t].quality.kl,
                                .flops = work.recompute_flops,
                                .patch = plan.mode == engine::ScdMode::kPatch});
    }
    return options;
  }

  engine::ScdPoint BestGroup() {
    std::vector<Trial> trials;
    for (engine::ScdPoint& point : RecomputedGroups(shape()))
      trials.push_back({.point = std::move(point), .alone = std::nullopt});
    const std::vector<TrialResult> results =
        Measure(producer_, consumer_, out_.profile, trials, windows_.choose, [this] { Step(); });
    const auto best = std::ranges::min_element(results, {}, [](const TrialResult& r) { return r.quality.kl; });
    return trials[static_cast<size_t>(best - results.begin())].point;
  }

  engine::ScdPoint Choose(const std::vector<std::vector<engine::ScdOption>>& measured, const double budget) const {
    const double raw = RawBytes();
    const double prefill = engine::ScdPrefillFlops(consumer_.spec(), kReportedTokens);
    const std::vector<size_t> chosen = engine::ChooseScdOptions(
        measured, {.bytes = static_cast<int64_t>(budget * raw),
                   .flops = options_.recompute_share_max * prefill,
                   .patch_layers = options_.patch_layers < 0 ? INT32_MAX : options_.patch_layers});
    engine::ScdPoint point{.name = fmt::format("scd-{:g}", budget), .layers = {}};
    for (size_t i = 0; i < chosen.size(); ++i) point.layers.push_back(plans_[i][chosen[i]]);
    return point;
  }

  double RawBytes() const {
    const engine::ScdPoint raw{.name = "raw", .layers = std::vector<engine::ScdLayerPlan>(shape().layers.size())};
    return static_cast<double>(ScdPayloadBytes(shape(), raw, kReportedTokens));
  }

  // --- Judging ---
  void JudgePoints(const std::vector<engine::ScdPoint>& points) {
    std::vector<Trial> trials;
    for (const engine::ScdPoint& point : points) trials.push_back({.point = point, .alone = std::nullopt});
    const std::vector<TrialResult> results =
        Measure(producer_, consumer_, out_.profile, trials, windows_.judge, [this] { Step(); });
    const double prefill = engine::ScdPrefillFlops(consumer_.spec(), kReportedTokens);
    const auto tokens = static_cast<double>(kReportedTokens);
    out_.raw_bytes_per_token = RawBytes() / tokens;
    for (size_t i = 0; i < points.size(); ++i) {
      const engine::ScdWork work = ScdWorkOf(out_.profile, consumer_.spec(), points[i], kReportedTokens);
      out_.points.push_back({.point = points[i],
                             .quality = results[i].quality,
                             .layer_errors = results[i].layer_errors,
                             .payload_bytes_per_token =
                                 static_cast<double>(ScdPayloadBytes(shape(), points[i], kReportedTokens)) / tokens,
                             .recompute_share = work.recompute_flops / prefill,
                             .reconstruct_share = work.reconstruct_flops / prefill});
      if (points[i].name == "raw") out_.raw = i;
    }
  }

  // The profile holds the points that need no judgement of its maker: those that send codes.
  void Keep(const size_t baselines) {
    out_.main = out_.points.size() - 1;
    for (size_t i = 0; i < out_.points.size(); ++i) {
      const MeasuredPoint& measured = out_.points[i];
      if (measured.point.name.starts_with("reuse") || i >= baselines) {
        out_.profile.points.push_back(measured.point);
        out_.profile.qualities.push_back(measured.quality);
      }
      if (i >= baselines && measured.payload_bytes_per_token <= 0.5 * out_.raw_bytes_per_token) out_.main = i;
    }
    engine::TrimScdProfile(out_.profile);
  }

  Party& producer_;
  Party& consumer_;
  const CalibrateOptions& options_;
  const Windows windows_;
  const ProgressFile progress_file_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::vector<engine::ScdLayerFitter> fitters_;
  std::vector<std::vector<engine::ScdLayerPlan>> plans_;  // Of each layer, what is tried.
  int64_t trials_ = 0;
  int64_t done_ = 0;
  int64_t total_ = 0;
  Calibration out_;
};

}  // namespace

StatusOr<Calibration> CalibrateOn(const CalibratedModel& producer, const CalibratedModel& consumer,
                                  const std::span<const TokenId> tokens, const CalibrateOptions& asked,
                                  const std::function<void(int64_t done, int64_t total)>& progress) {
  const CalibrateOptions options = Settled(asked, std::ssize(tokens), consumer.model.spec().max_sequence_tokens);
  engine::ScdProfile profile;
  StatusOr<engine::ScdSide> from = engine::ScdSideOf(producer.model.spec(), producer.folder);
  if (!from.ok()) return from.status();
  StatusOr<engine::ScdSide> to = engine::ScdSideOf(consumer.model.spec(), consumer.folder);
  if (!to.ok()) return to.status();
  profile.shape = engine::ScdShapeOf(producer.model.spec());
  if (Status s = CheckPair(profile.shape, engine::ScdShapeOf(consumer.model.spec()), *from, *to); !s.ok()) return s;
  profile.producer = *std::move(from);
  profile.consumer = *std::move(to);
  StatusOr<Windows> windows = CutWindows(tokens, {.fit = options.fit_windows,
                                                  .choose = options.choose_windows,
                                                  .judge = options.judge_windows,
                                                  .prefix_tokens = options.prefix_tokens,
                                                  .suffix_tokens = options.suffix_tokens});
  if (!windows.ok()) return windows.status();
  const int32_t tokens_max = options.prefix_tokens + options.suffix_tokens;
  StatusOr<std::unique_ptr<Party>> producing =
      Party::Make(producer.model, {.sequences = 1,
                                   .checkpoints = static_cast<int32_t>(options.tails.size()),
                                   .tokens_max = tokens_max,
                                   .rows_max = producer.rows_max});
  if (!producing.ok()) return producing.status();
  StatusOr<std::unique_ptr<Party>> consuming =
      Party::Make(consumer.model, {.sequences = 2, .tokens_max = tokens_max, .rows_max = consumer.rows_max});
  if (!consuming.ok()) return consuming.status();
  const Digest identity = IdentityOf(profile, tokens, options);
  profile.calibration = ToHex(identity);
  return Run(**producing, **consuming, options, *std::move(windows), std::move(profile), identity, progress).Do();
}

StatusOr<Calibration> Calibrate(const CalibratedModel& producer, const CalibratedModel& consumer,
                                const models::Tokenizer& tokenizer, const CalibrateOptions& options,
                                const std::function<void(int64_t done, int64_t total)>& progress) {
  const StatusOr<std::vector<TokenId>> tokens = ReadTokens(tokenizer, options.text_paths);
  if (!tokens.ok()) return tokens.status();
  return CalibrateOn(producer, consumer, *tokens, options, progress);
}

}  // namespace invar::calibrate
