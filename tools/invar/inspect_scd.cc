// See inspect_scd.h.
#include "tools/invar/inspect_scd.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/transfer/scd_profile_file.h"
#include "tools/calibrate/options.h"
#include "tools/calibrate/report.h"
#include "tools/invar/command.h"
#include "tools/invar/parse.h"

namespace invar::tools {
namespace {

double BytesPerToken(const engine::ScdProfile& profile, const engine::ScdPoint& point) {
  constexpr int64_t kTokens = calibrate::kReportedTokens;
  return static_cast<double>(ScdPayloadBytes(profile.shape, point, kTokens)) / static_cast<double>(kTokens);
}

double RawBytesPerToken(const engine::ScdProfile& profile) {
  return BytesPerToken(profile,
                       {.name = "raw", .layers = std::vector<engine::ScdLayerPlan>(profile.shape.layers.size())});
}

nlohmann::ordered_json ToJson(const engine::ScdProfile& profile, const int64_t file_bytes) {
  nlohmann::ordered_json json = {
      {"version", engine::kScdVersion},           {"bytes", file_bytes},
      {"producer", profile.producer.fingerprint}, {"consumer", profile.consumer.fingerprint},
      {"tokenizer", profile.consumer.tokenizer},  {"numerics", profile.consumer.numerics_id},
      {"calibration", profile.calibration},       {"hidden", profile.shape.hidden},
      {"layers", profile.shape.layers.size()},    {"raw_bytes_per_token", RawBytesPerToken(profile)},
      {"points", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < profile.points.size(); ++i) {
    const engine::ScdQuality& quality = profile.qualities[i];
    nlohmann::ordered_json layers = nlohmann::ordered_json::array();
    for (const engine::ScdLayerPlan& plan : profile.points[i].layers) layers.push_back(engine::ToWords(plan));
    json["points"].push_back({{"name", profile.points[i].name},
                              {"payload_bytes_per_token", BytesPerToken(profile, profile.points[i])},
                              {"kl", quality.kl},
                              {"top1_agreement", quality.top1_agreement},
                              {"attention_cosine", quality.attention_cosine},
                              {"layers", std::move(layers)}});
  }
  return json;
}

void PrintWords(const std::string& path, const engine::ScdProfile& profile, const int64_t file_bytes) {
  const int64_t recurrent = std::ranges::count_if(profile.shape.layers, &engine::ScdLayerShape::recurrent);
  const double raw = RawBytesPerToken(profile);
  fmt::print("{}: SCD profile, version {}, {:.1f} MB\n", path, engine::kScdVersion,
             static_cast<double>(file_bytes) / 1e6);
  fmt::print("from the model {}\n  to the model {}\n", profile.producer.fingerprint, profile.consumer.fingerprint);
  fmt::print("both with the tokenizer {}, {} layers ({} recurrent), hidden {}, numerics {}\n",
             profile.consumer.tokenizer.substr(0, 16), profile.shape.layers.size(), recurrent, profile.shape.hidden,
             profile.consumer.numerics_id);
  fmt::print("fitted with the calibration {}\n", profile.calibration);
  fmt::print("raw reuse sends {:.1f} bytes a token (states of a prefix of {} tokens included)\n", raw,
             calibrate::kReportedTokens);
  for (size_t i = 0; i < profile.points.size(); ++i) {
    const engine::ScdQuality& quality = profile.qualities[i];
    const double bytes = BytesPerToken(profile, profile.points[i]);
    fmt::print("\npoint {}: {:.1f} bytes a token ({:.1f} % of raw), KL {:.5f}, top-1 agreement {:.4f}\n",
               profile.points[i].name, bytes, 100.0 * bytes / raw, quality.kl, quality.top1_agreement);
    for (size_t layer = 0; layer < profile.points[i].layers.size(); ++layer)
      fmt::print("  layer {:>2}: {}\n", layer, engine::ToWords(profile.points[i].layers[layer]));
  }
}

}  // namespace

int InspectScdFile(const std::string& path, const bool as_json) {
  const StatusOr<engine::ScdProfile> profile = engine::LoadScd(path);
  if (!profile.ok()) return ExitOf("inspect", profile.status());
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (as_json) {
    std::printf("%s\n", ToJson(*profile, bytes).dump().c_str());
  } else {
    PrintWords(path, *profile, bytes);
  }
  return kExitOk;
}

}  // namespace invar::tools
