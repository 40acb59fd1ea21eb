// One logger a folder, all writing JSON lines (or plain text) to stderr.
#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace invar {

enum class LogFormat { kJson, kText };

// Sets format and level ("trace" ... "error") of all loggers. Call once, before threads start.
void ConfigureLogs(LogFormat format, std::string_view level);
// The level alone. Threads: any.
void SetLogLevel(std::string_view level);

// The logger of a folder: "server", "engine". Made at first use. Threads: any.
std::shared_ptr<spdlog::logger> Logger(const std::string& name);

// Named values of one line: members of the JSON object beside "msg", or `name=value` in text.
class LogFields {
 public:
  // Requires: `name` is a plain word, not given twice, and none of ts, level, logger, msg.
  LogFields& Add(std::string_view name, std::string_view text);
  LogFields& Add(std::string_view name, int64_t value);
  LogFields& Add(std::string_view name, double value);

  const std::string& json() const { return json_; }  // ,"name":value,...
  const std::string& text() const { return text_; }  //  name=value ...

 private:
  std::string json_, text_;
};
// Threads: any.
void LogWithFields(spdlog::logger& logger, spdlog::level::level_enum level, std::string_view message,
                   const LogFields& fields);

// `text` as the inside of a JSON string: for fields of a log line.
std::string EscapeJson(std::string_view text);

}  // namespace invar
