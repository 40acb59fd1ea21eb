// See request_input.h.
#include "tools/invar/request_input.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace invar::tools {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kChatBytesMax = int64_t{16} << 20;

Status FillTokens(const std::string& list, v1::TokenIds& ids) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(list.data() + begin, list.data() + end, id);
    if (error != std::errc() || stop != list.data() + end) {
      return InvalidArgument("--tokens: wants ids such as 1,2,3, found '" + list.substr(begin, end - begin) + "'");
    }
    ids.add_ids(id);
    begin = end + 1;
  }
  return OkStatus();
}

std::string Plain(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void FillMessage(const ordered_json& json, v1::ChatMessage& message) {
  for (const auto& [key, value] : json.items()) {
    if (key == "role") {
      message.set_role(Plain(value));
    } else if (key == "content" && value.is_array()) {
      for (const auto& part : value) {
        message.add_content_parts(part.is_object() && part.contains("text") ? Plain(part["text"]) : Plain(part));
      }
    } else if (key == "content" && !value.is_null()) {
      message.set_content(Plain(value));
    } else if (key == "name") {
      message.set_name(Plain(value));
    } else if (key == "tool_calls") {
      message.set_tool_calls_json(value.dump());
    } else if (key == "reasoning_content") {
      message.set_reasoning_content(Plain(value));
    } else if (key == "tool_call_id") {
      message.set_tool_call_id(Plain(value));
    }
  }
}

StatusOr<std::string> ReadChatFile(const std::string& path) {
  if (path != "-") return ReadFile(path, kChatBytesMax);
  std::string text;
  char buffer[65536];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0;) text.append(buffer, n);
  return text;
}

Status FillChat(const std::string& path, v1::Chat& chat) {
  const StatusOr<std::string> text = ReadChatFile(path);
  if (!text.ok()) return text.status();
  const ordered_json json = ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument(path + ": not JSON");
  const ordered_json& messages = json.is_object() && json.contains("messages") ? json["messages"] : json;
  if (!messages.is_array()) return InvalidArgument(path + ": wants a list of messages, or an object with `messages`");
  for (const ordered_json& message : messages) {
    if (!message.is_object()) return InvalidArgument(path + ": a message is an object with role and content");
    FillMessage(message, *chat.add_messages());
  }
  if (!json.is_object()) return OkStatus();
  if (json.contains("tools")) chat.set_tools_json(json["tools"].dump());
  if (json.contains("template_options")) chat.set_template_options_json(json["template_options"].dump());
  if (json.contains("add_generation_prompt") && json["add_generation_prompt"].is_boolean()) {
    chat.set_add_generation_prompt(json["add_generation_prompt"].get<bool>());
  }
  if (json.contains("continue_final_message") && json["continue_final_message"].is_boolean()) {
    chat.set_continue_final_message(json["continue_final_message"].get<bool>());
  }
  return OkStatus();
}

}  // namespace

void AddInputOptions(CLI::App& app, RequestInput& o) {
  auto* input = app.add_option_group("input", "what to continue");
  input->add_option("--text", o.text, "Text, continued as it stands");
  input->add_option("--tokens", o.tokens, "Token ids: 1,2,3");
  input->add_option("--chat", o.chat, "JSON file: messages, or {messages, tools, template_options}; - reads stdin");
  input->require_option(1);
  app.add_flag("--add-special", o.add_special, "With --text: add BOS/EOS as the tokenizer says");
}

Status FillInput(const RequestInput& o, v1::GenerateRequest& request) {
  if (o.text) {
    request.set_text(*o.text);
    request.set_add_special(o.add_special);
    return OkStatus();
  }
  if (o.tokens) return FillTokens(*o.tokens, *request.mutable_tokens());
  return FillChat(*o.chat, *request.mutable_chat());
}

}  // namespace invar::tools
