// invar inspect of a file: a profile of semantic cache distillation.
#pragma once

#include <string>

namespace invar::tools {

// Says in words, or as one JSON object, what is in the profile `path`. Gives the exit code.
int InspectScdFile(const std::string& path, bool as_json);

}  // namespace invar::tools
