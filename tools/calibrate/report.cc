// The table and the JSON; the picture is in picture.cc.
#include "tools/calibrate/report.h"

#include <fmt/format.h>

#include <iterator>

namespace invar::calibrate {
namespace {

using engine::ScdMode;

nlohmann::ordered_json ToJson(const engine::ScdLayerPlan& plan, const double error) {
  return {{"mode", ScdModeName(plan.mode)},
          {"rank", RankOf(plan)},
          {"rank_k", plan.mode == ScdMode::kReuseKv ? plan.rank : 0},
          {"rank_v", plan.rank_v},
          {"bits", CodeBitsName(plan.bits)},
          {"features", plan.features},
          {"tail", plan.tail},
          {"error", error}};
}

nlohmann::ordered_json ToJson(const MeasuredPoint& point) {
  nlohmann::ordered_json json = {{"name", point.point.name},
                                 {"payload_bytes_per_token", point.payload_bytes_per_token},
                                 {"recompute_share", point.recompute_share},
                                 {"reconstruct_share", point.reconstruct_share},
                                 {"kl", point.quality.kl},
                                 {"top1_agreement", point.quality.top1_agreement},
                                 {"attention_cosine", point.quality.attention_cosine},
                                 {"layers", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < point.layer_errors.size(); ++i)
    json["layers"].push_back(ToJson(point.point.layers[i], point.layer_errors[i]));
  return json;
}

}  // namespace

int32_t RankOf(const engine::ScdLayerPlan& plan) { return plan.rank + plan.rank_v; }

std::string ToTable(const Calibration& calibration) {
  std::string out;
  const auto add = [&]<typename... Values>(const fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
  };
  add("{:<16} {:>8} {:>7} {:>9} {:>8} {:>9} {:>7} {:>9} {:>9}\n", "point", "bytes/t", "of raw", "kl", "of raw", "top-1",
      "cosine", "recompute", "decode");
  add("{:<16} {:>8} {:>7} {:>9.5f} {:>8} {:>9.4f} {:>7.4f} {:>9.4f} {:>9}\n", "oracle", 0, "0.000", 0.0, "0.000", 1.0,
      1.0, 1.0, "-");
  const double raw_kl = calibration.points[calibration.raw].quality.kl;
  for (const MeasuredPoint& point : calibration.points) {
    add("{:<16} {:>8.1f} {:>7.3f} {:>9.5f} {:>8.3f} {:>9.4f} {:>7.4f} {:>9.4f} {:>9.4f}\n", point.point.name,
        point.payload_bytes_per_token, point.payload_bytes_per_token / calibration.raw_bytes_per_token,
        point.quality.kl, point.quality.kl / raw_kl, point.quality.top1_agreement, point.quality.attention_cosine,
        point.recompute_share, point.reconstruct_share);
  }
  const MeasuredPoint& main = calibration.points[calibration.main];
  const MeasuredPoint& raw = calibration.points[calibration.raw];
  add("\n{}: layer by layer (error relative to the consumer's own cache; raw reuse beside)\n", main.point.name);
  add("{:>5}  {:<40} {:>8} {:>8}\n", "layer", "sent as", "error", "raw");
  for (size_t i = 0; i < main.layer_errors.size(); ++i) {
    add("{:>5}  {:<40} {:>8.4f} {:>8.4f}\n", i, engine::ToWords(main.point.layers[i]), main.layer_errors[i],
        raw.layer_errors[i]);
  }
  return out;
}

nlohmann::ordered_json ToJson(const Calibration& calibration, const CalibrateOptions& options) {
  const MeasuredPoint& main = calibration.points[calibration.main];
  const engine::ScdProfile& profile = calibration.profile;
  nlohmann::ordered_json json = ToJson(main);
  json["raw_bytes_per_token"] = calibration.raw_bytes_per_token;
  json["kl_raw_reuse"] = calibration.points[calibration.raw].quality.kl;
  json["producer"] = profile.producer.fingerprint;
  json["consumer"] = profile.consumer.fingerprint;
  json["numerics"] = profile.consumer.numerics_id;
  json["calibration"] = profile.calibration;
  json["prefix_tokens"] = calibration.prefix_tokens;
  json["suffix_tokens"] = options.suffix_tokens;
  json["fit_windows"] = options.fit_windows;
  json["judge_windows"] = options.judge_windows;
  json["points"] = nlohmann::ordered_json::array();
  for (const MeasuredPoint& point : calibration.points) json["points"].push_back(ToJson(point));
  return json;
}

}  // namespace invar::calibrate
