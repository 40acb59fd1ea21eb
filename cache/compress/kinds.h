// Every kind of compressor that registry.cc names, and the settings several of them have.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "cache/compress/settings.h"
#include "cache/compressor.h"

namespace invar::cache {

struct CompressorKind {
  std::span<const SettingRow> settings;
  std::unique_ptr<Compressor> (*make)(const Settings& settings);
};

template <typename Kind>
std::unique_ptr<Compressor> MakeKind(const Settings& settings) {
  return std::make_unique<Kind>(settings);
}

CompressorKind Noop();
CompressorKind RandomDrop();
CompressorKind Streaming();
CompressorKind SnapKv();
CompressorKind H2o();
CompressorKind Tova();
CompressorKind ExpectedAttention();
CompressorKind KvZip();
CompressorKind Int8();
CompressorKind K8V4();
CompressorKind Kivi4();
CompressorKind Kivi2();
CompressorKind Centroid();
CompressorKind ValueMerge();
CompressorKind KMeans();

inline constexpr double kUntouchedMax = 65536;

constexpr SettingRow SinksRow(const double standard = 4) {
  return {"sinks", SettingType::kInteger, standard, 0, kUntouchedMax, {}, "first tokens kept as they are"};
}
constexpr SettingRow RecentRow(const double standard = 64, const double min = 0) {
  return {"recent", SettingType::kInteger, standard, min, kUntouchedMax, {}, "last tokens kept as they are"};
}
// "auto" and the encodings: choice 0 and 1 + the enumerator's value.
inline constexpr auto kEncodingChoices = [] {
  std::array<std::string_view, kernels::kEncodings + 1> names = {"auto"};
  std::copy(kernels::kKvEncodingNames.begin(), kernels::kKvEncodingNames.end(), names.begin() + 1);
  return names;
}();
inline constexpr double kAutoEncoding = 0;
inline constexpr double kDenseEncoding = 1;
constexpr SettingRow EncodingRow(const double standard = kDenseEncoding) {
  return {"encoding",
          SettingType::kChoice,
          standard,
          0,
          0,
          kEncodingChoices,
          "how pages of what is kept are written; auto: in no fewer bits than the budget asks for"};
}
// `traits` with these three.
inline CompressorTraits WithKept(CompressorTraits traits, const Settings& settings) {
  traits.sinks = static_cast<int32_t>(settings.Integer("sinks"));
  traits.recent = static_cast<int32_t>(settings.Integer("recent"));
  const int64_t encoding = settings.Choice("encoding");
  traits.encoding.reset();
  if (encoding > 0) traits.encoding = static_cast<kernels::KvEncoding>(encoding - 1);
  return traits;
}

}  // namespace invar::cache
