// JSON files read strictly: duplicate keys, excessive depth and trailing text are refused instead of guessed about.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace invar::models {

// `what` names the text in messages, such as a path. Errors: INVALID_ARGUMENT. Threads: any.
StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, const std::string& what);

}  // namespace invar::models
