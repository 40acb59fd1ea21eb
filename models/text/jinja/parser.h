// Template source to statements, in Jinja's grammar. What the subset does not know (include, extends, block, call,
// filter blocks, macros inside loops, unknown filters and tests) is refused here, at load, with its name and line.
#pragma once

#include <string_view>

#include "base/status.h"
#include "models/text/jinja/ast.h"

namespace invar::models::jinja {

// Errors: INVALID_ARGUMENT naming construct and line; also where the template nests deeper than kMaxHeight.
StatusOr<Body> ParseTemplate(std::string_view source);

// Nesting of statements or expressions; real templates stay below 30.
inline constexpr int kMaxHeight = 100;

}  // namespace invar::models::jinja
