// Settings of a compressor: "name:key=value,..." read strictly against the kind's table, and written canonically, all
// of them in the table's order. The canonical text is the provenance of what the compressor made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace invar::cache {

enum class SettingType { kInteger, kReal, kChoice };

struct SettingRow {
  std::string_view key;
  SettingType type = SettingType::kInteger;
  double standard = 0.0;  // Default; of a choice its index.
  double min = 0.0;
  double max = 0.0;
  std::span<const std::string_view> choices{};
  std::string_view help;
};

class Settings {
 public:
  // `text`: what follows the colon; empty: all defaults.
  // Errors: INVALID_ARGUMENT for a key the table has not, one given twice, no value, a value that is none or out of
  // range; each names the key and what it may be.
  static StatusOr<Settings> Parse(std::string_view kind, std::span<const SettingRow> rows, std::string_view text);

  // Require: the table has the key, of that type.
  int64_t Integer(std::string_view key) const;
  double Real(std::string_view key) const;
  size_t Choice(std::string_view key) const;

  // "kind" or "kind:a=1,b=0.5".
  std::string Canonical() const;

 private:
  Settings(std::string_view kind, std::span<const SettingRow> rows);
  double Value(std::string_view key, SettingType type) const;

  std::string_view kind_;
  std::span<const SettingRow> rows_;
  std::vector<double> values_;
};

// "key = default (min..max): help" lines.
std::string SettingsHelp(std::span<const SettingRow> rows);

}  // namespace invar::cache
