// How every command reads its arguments and says that it failed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "base/status.h"
#include "tools/invar/command.h"

namespace invar::tools {

// The exit code where there is nothing to run: help was shown, or the arguments are wrong (said on stderr).
inline std::optional<int> Parse(CLI::App& app, const int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return std::nullopt;
}

// "invar logits: MESSAGE" on stderr where `status` is an error. `command`: "logits".
inline int ExitOf(const char* command, const Status& status) {
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "invar %s: %s\n", command, status.message().c_str());
  return kExitFailure;
}

}  // namespace invar::tools
