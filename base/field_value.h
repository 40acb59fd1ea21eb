// What is wrong with the value of a field that a caller has set: errors name the field by its path in the proto, so
// that a client can map them back, and say what is wanted and what was found.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace invar {

// `wanted`: "above 0, up to 1".
template <typename T>
Status Unwanted(const std::string_view field, const std::string_view wanted, const T& found) {
  return InvalidArgument(fmt::format("{}: wants {}, found {}", field, wanted, found), std::string(field));
}

// Errors: INVALID_ARGUMENT outside of [low, high]; NaN is outside.
template <typename T>
Status CheckRange(const std::string_view field, const T value, const T low, const T high) {
  if (value >= low && value <= high) return OkStatus();
  return Unwanted(field, fmt::format("{} to {}", low, high), value);
}

}  // namespace invar
