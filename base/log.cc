// Loggers on spdlog: one JSON object a line, or text for a terminal; named values stand beside the message.
#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cmath>

namespace invar {
namespace {

// Fields of the line that this thread is writing: the sinks format on the thread that logs, and spdlog has no other way
// to hand them through.
thread_local const LogFields* line_fields = nullptr;

void Append(const std::string& text, spdlog::memory_buf_t& out) { out.append(text.data(), text.data() + text.size()); }

// spdlog's pattern does not escape the message: this flag does, so that any text keeps a line valid JSON.
class MessageAndFields final : public spdlog::custom_flag_formatter {
 public:
  explicit MessageAndFields(const LogFormat format) : format_(format) {}
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    if (format_ == LogFormat::kJson) {
      Append('"' + EscapeJson(text) + '"', out);
      if (line_fields != nullptr) Append(line_fields->json(), out);
    } else {
      Append(std::string(text), out);
      if (line_fields != nullptr) Append(line_fields->text(), out);
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<MessageAndFields>(format_); }

 private:
  const LogFormat format_;
};

}  // namespace

void ConfigureLogs(const LogFormat format, const std::string_view level) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<MessageAndFields>('*', format);
  if (format == LogFormat::kJson) {
    formatter->set_pattern(R"({"ts":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","logger":"%n","msg":%*})");
  } else {
    formatter->set_pattern("%H:%M:%S.%e %^%l%$ %n: %*");
  }
  spdlog::set_formatter(std::move(formatter));
  SetLogLevel(level);
}

void SetLogLevel(const std::string_view level) { spdlog::set_level(spdlog::level::from_str(std::string(level))); }

std::shared_ptr<spdlog::logger> Logger(const std::string& name) {
  if (auto logger = spdlog::get(name)) return logger;
  try {
    auto logger = std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
    spdlog::initialize_logger(logger);
    return logger;
  } catch (const spdlog::spdlog_ex&) {
    return spdlog::get(name);  // Another thread made it first.
  }
}

LogFields& LogFields::Add(const std::string_view name, const std::string_view text) {
  const std::string escaped = EscapeJson(text);
  json_ += fmt::format(",\"{}\":\"{}\"", name, escaped);
  text_ += fmt::format(" {}=\"{}\"", name, escaped);
  return *this;
}

LogFields& LogFields::Add(const std::string_view name, const int64_t value) {
  json_ += fmt::format(",\"{}\":{}", name, value);
  text_ += fmt::format(" {}={}", name, value);
  return *this;
}

LogFields& LogFields::Add(const std::string_view name, const double value) {
  // Six digits: microseconds of a second. JSON knows no infinity and no NaN.
  const std::string number = std::isfinite(value) ? fmt::format("{:.6f}", value) : "null";
  json_ += fmt::format(",\"{}\":{}", name, number);
  text_ += fmt::format(" {}={}", name, number);
  return *this;
}

void LogWithFields(spdlog::logger& logger, const spdlog::level::level_enum level, const std::string_view message,
                   const LogFields& fields) {
  line_fields = &fields;
  logger.log(level, message);
  line_fields = nullptr;
}

std::string EscapeJson(const std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace invar
