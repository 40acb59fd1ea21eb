// Numbers go through <charconv>: no locale, and the shortest text that reads back as the same number.
#include "cache/compress/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace invar::cache {
namespace {

std::string NumberText(const double x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), x).ptr;
  return std::string(text, end);
}

std::string ValueText(const SettingRow& row, const double value) {
  if (row.type == SettingType::kChoice) return std::string(row.choices[static_cast<size_t>(value)]);
  if (row.type == SettingType::kInteger) return std::to_string(static_cast<int64_t>(value));
  return NumberText(value);
}

template <typename Names>
std::string Joined(const Names& names, const std::string_view between) {
  std::string text;
  for (const auto& name : names) {
    if (!text.empty()) text += between;
    text += name;
  }
  return text;
}

std::string RangeText(const SettingRow& row) {
  if (row.type == SettingType::kChoice) return Joined(row.choices, "|");
  return ValueText(row, row.min) + ".." + ValueText(row, row.max);
}

std::string Keys(const std::span<const SettingRow> rows) {
  std::vector<std::string_view> keys;
  for (const SettingRow& row : rows) keys.push_back(row.key);
  return keys.empty() ? std::string("none") : Joined(keys, ", ");
}

// The value, or NaN where the text is none.
double ValueOf(const SettingRow& row, const std::string_view text) {
  if (row.type == SettingType::kChoice) {
    const auto at = std::find(row.choices.begin(), row.choices.end(), text);
    return at == row.choices.end() ? std::nan("") : static_cast<double>(at - row.choices.begin());
  }
  double value = std::nan("");
  const auto read = [&](auto number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) value = static_cast<double>(number);
  };
  if (row.type == SettingType::kInteger) {
    read(int64_t{0});
  } else {
    read(0.0);
  }
  return value >= row.min && value <= row.max ? value : std::nan("");
}

}  // namespace

Settings::Settings(const std::string_view kind, const std::span<const SettingRow> rows) : kind_(kind), rows_(rows) {
  for (const SettingRow& row : rows) values_.push_back(row.standard);
}

StatusOr<Settings> Settings::Parse(const std::string_view kind, const std::span<const SettingRow> rows,
                                   std::string_view text) {
  const auto error = [&](const std::string& what) {
    return InvalidArgument("compressor " + std::string(kind) + ": " + what);
  };
  Settings settings(kind, rows);
  std::vector<bool> given(rows.size(), false);
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const size_t equals = item.find('=');
    const std::string key(item.substr(0, equals));
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const SettingRow& r) { return r.key == key; });
    if (row == rows.end()) return error("it has no setting \"" + key + "\"; its settings are: " + Keys(rows));
    const size_t index = row - rows.begin();
    if (given[index]) return error("setting \"" + key + "\" is given twice");
    given[index] = true;
    const std::string value(equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1));
    settings.values_[index] = ValueOf(*row, value);
    if (std::isnan(settings.values_[index])) {
      return error("setting \"" + key + "\" is \"" + value + "\"; it takes " + RangeText(*row));
    }
    if (comma != std::string_view::npos && text.empty()) return error("the settings end with a comma");
  }
  return settings;
}

double Settings::Value(const std::string_view key, const SettingType type) const {
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const SettingRow& r) { return r.key == key; });
  Check(row != rows_.end() && row->type == type, "the setting is in the kind's table", kind_, key);
  return values_[row - rows_.begin()];
}

int64_t Settings::Integer(const std::string_view key) const {
  return static_cast<int64_t>(Value(key, SettingType::kInteger));
}
double Settings::Real(const std::string_view key) const { return Value(key, SettingType::kReal); }
size_t Settings::Choice(const std::string_view key) const {
  return static_cast<size_t>(Value(key, SettingType::kChoice));
}

std::string Settings::Canonical() const {
  std::string text(kind_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    text += i == 0 ? ':' : ',';
    text += rows_[i].key;
    text += '=' + ValueText(rows_[i], values_[i]);
  }
  return text;
}

std::string SettingsHelp(const std::span<const SettingRow> rows) {
  std::string text;
  for (const SettingRow& row : rows) {
    text += std::string(row.key) + " = " + ValueText(row, row.standard) + " (" + RangeText(row) +
            "): " + std::string(row.help) + "\n";
  }
  return text;
}

}  // namespace invar::cache
