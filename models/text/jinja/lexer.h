// Tokens of a template, with Jinja's white-space rules: trim_blocks and lstrip_blocks on (as transformers sets them),
// `-` and `+` marks, one final newline of the source dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace invar::models::jinja {

struct Token {
  enum class Kind {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;  // Of strings: the value, escapes resolved.
  int line;
};

// Ends with one kEnd. Errors: INVALID_ARGUMENT naming the line. Threads: any.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace invar::models::jinja
