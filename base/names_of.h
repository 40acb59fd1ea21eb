// The names of a registry's rows, for messages and for walking all kinds.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace invar {

// Requires: Row has a member `name` that converts to std::string_view.
template <typename Row, size_t kCount>
constexpr std::array<std::string_view, kCount> NamesOf(const std::array<Row, kCount>& rows) {
  std::array<std::string_view, kCount> names{};
  for (size_t i = 0; i < kCount; ++i) names[i] = rows[i].name;
  return names;
}

}  // namespace invar
