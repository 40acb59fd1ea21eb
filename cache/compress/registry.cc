// Name -> kind, one line each.
#include <algorithm>
#include <array>

#include "base/names_of.h"
#include "cache/compress/kinds.h"

namespace invar::cache {
namespace {

struct Row {
  std::string_view name;
  CompressorKind (*kind)();
};

constexpr std::array kRows = {
    Row{"noop", Noop},
    Row{"random_drop", RandomDrop},
    Row{"streaming", Streaming},
    Row{"snapkv", SnapKv},
    Row{"h2o", H2o},
    Row{"tova", Tova},
    Row{"expected_attention", ExpectedAttention},
    Row{"kvzip", KvZip},
    Row{"int8", Int8},
    Row{"k8v4", K8V4},
    Row{"kivi4", Kivi4},
    Row{"kivi2", Kivi2},
    Row{"centroid", Centroid},
    Row{"value_merge", ValueMerge},
    Row{"kmeans", KMeans},
};

constexpr auto kNames = NamesOf(kRows);

const Row* Find(const std::string_view name) {
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == name; });
  return row == kRows.end() ? nullptr : &*row;
}

}  // namespace

StatusOr<std::unique_ptr<Compressor>> MakeCompressor(const std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const Row* row = Find(name);
  if (row == nullptr) {
    std::string message = "there is no compressor \"" + std::string(name) + "\"; there are:";
    for (const std::string_view known : kNames) message += " " + std::string(known);
    return InvalidArgument(message);
  }
  if (colon != std::string_view::npos && colon + 1 == text.size()) {
    return InvalidArgument("compressor " + std::string(name) + ": no settings follow the colon");
  }
  const CompressorKind kind = row->kind();
  StatusOr<Settings> settings =
      Settings::Parse(row->name, kind.settings, colon == std::string_view::npos ? "" : text.substr(colon + 1));
  if (!settings.ok()) return settings.status();
  return kind.make(*settings);
}

std::span<const std::string_view> CompressorNames() { return kNames; }

std::string CompressorHelp(const std::string_view name) {
  const Row* row = Find(name);
  return row == nullptr ? std::string() : SettingsHelp(row->kind().settings);
}

}  // namespace invar::cache
