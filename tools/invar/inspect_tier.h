// What `invar inspect` says about the folder of a disk tier.
#pragma once

#include <string>

namespace invar::tools {

// Whether `path` is such a folder; anything else is for others to judge.
bool IsTierFolder(const std::string& path);
// Prints it; `check_payloads` reads every byte. A daemon may be using the folder meanwhile. Gives the exit code:
// failure where records are damaged.
int InspectTierFolder(const std::string& path, bool check_payloads, bool as_json);

}  // namespace invar::tools
