// One logger a folder, all writing JSON lines (or plain text) to stderr.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <string_view>

namespace invar {

enum class LogFormat { kJson, kText };

// Sets format and level ("trace" ... "error") of all loggers. Call once, before threads start.
void ConfigureLogs(LogFormat format, std::string_view level);

// The logger of a folder: "server", "engine". Made at first use. Threads: any.
std::shared_ptr<spdlog::logger> Logger(const std::string& name);

// `text` as the inside of a JSON string: for fields of a log line.
std::string EscapeJson(std::string_view text);

}  // namespace invar
