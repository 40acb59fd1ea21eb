// How answers are judged.
#pragma once

#include <string_view>

#include "tools/eval/task.h"

namespace invar::eval {

// The share of what is expected that stands in the answer, whatever the case of letters. RULER's score.
double ShareFound(const Task& task, std::string_view answer);
// Whether the first number behind the lead is the one expected.
double SameNumber(const Task& task, std::string_view answer);
// Whether the first JSON object of the answer parses and equals the one expected: name and arguments of a tool call.
double SameCall(const Task& task, std::string_view answer);

}  // namespace invar::eval
