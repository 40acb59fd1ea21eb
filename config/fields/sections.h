// The tables of fields: a file a section. fields.cc puts them together in the order of printing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "config/fields.h"

namespace invar::config {

inline constexpr int64_t kKiB = 1024;
inline constexpr int64_t kMiB = 1024 * kKiB;
inline constexpr int64_t kGiB = 1024 * kMiB;
inline constexpr int64_t kTiB = 1024 * kGiB;
inline constexpr size_t kPathBytesMax = 4096;

template <size_t kCount>
std::vector<std::string_view> Choices(const std::array<std::string_view, kCount>& names) {
  return {names.begin(), names.end()};
}

std::vector<Field> ServerFields();
std::vector<Field> EngineFields();
std::vector<Field> CacheFields();
std::vector<Field> TransferFields();
std::vector<Field> LimitFields();
std::vector<Field> OperationFields();

}  // namespace invar::config
