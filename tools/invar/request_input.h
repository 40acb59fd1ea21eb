// The prompt of a request from the command line: text, token ids or a chat in a file.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/status.h"
#include "invar/v1/generation.pb.h"

namespace invar::tools {

struct RequestInput {
  std::optional<std::string> text, tokens, chat;
  bool add_special = false;
};

// --text, --tokens, --chat, of which one is required, and --add-special.
void AddInputOptions(CLI::App& app, RequestInput& input);

// Errors: INVALID_ARGUMENT; those of reading the file.
Status FillInput(const RequestInput& input, v1::GenerateRequest& request);

}  // namespace invar::tools
