// From file, environment and command line to one checked Config, each value with its origin.
// Precedence: --set and --model > INVAR_SECTION__KEY > file > default. Strict: what is not known is an error.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/config.h"

namespace invar::config {

struct Sources {
  std::optional<std::string> file;                 // --config
  std::map<std::string, std::string> environment;  // INVAR_SECTION__KEY entries; others are ignored.
  std::vector<std::string> sets;                   // --set key.path=value, in order; the last of one key wins.
  std::optional<std::string> model;                // --model
};

struct Loaded {
  Config config;
  std::map<std::string, std::string> origins = {};  // Field path -> "FILE:LINE", "INVAR_...", "--set"; absent: default.
};

// Errors: INVALID_ARGUMENT naming place, field, wanted and found, and the nearest name where a key is unknown;
// NOT_FOUND for the file. Opens nothing but the file.
StatusOr<Loaded> Load(const Sources& sources);
// As Load of a file alone with this content; `name` stands in messages. For tests.
StatusOr<Loaded> LoadText(const std::string& yaml, const std::string& name);

// The INVAR_* part of the process's environment.
std::map<std::string, std::string> InvarEnvironment(char** environment);

// Loadable YAML, every field, each with its origin as a comment; token hashes hidden.
std::string PrintConfig(const Loaded& loaded);
// The defaults as loadable YAML, each with its sentence and range as a comment.
std::string PrintDefaultConfig();
// docs/CONFIG.md.
std::string PrintDocs();

}  // namespace invar::config
