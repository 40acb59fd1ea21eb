// Loggers on spdlog: one JSON object a line, or text for a terminal.
#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace invar {
namespace {

// spdlog's pattern does not escape the message: this flag does, so that any text keeps a line valid JSON.
class EscapedMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = EscapeJson(std::string_view(message.payload.data(), message.payload.size()));
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<EscapedMessage>(); }
};

}  // namespace

void ConfigureLogs(const LogFormat format, const std::string_view level) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  if (format == LogFormat::kJson) {
    formatter->add_flag<EscapedMessage>('*');
    formatter->set_pattern(R"({"ts":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","logger":"%n","msg":"%*"})");
  } else {
    formatter->set_pattern("%H:%M:%S.%e %^%l%$ %n: %v");
  }
  spdlog::set_formatter(std::move(formatter));
  spdlog::set_level(spdlog::level::from_str(std::string(level)));
}

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
