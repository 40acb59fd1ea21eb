// Loads a model's chat template and renders requests with it, with the variables that transformers gives.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "models/text.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/json_value.h"
#include "models/text/jinja/parser.h"
#include "models/text/jinja/strings.h"
#include "models/text/json_fields.h"
#include "models/text/strict_json.h"
#include "models/text/unicode.h"

namespace invar::models {
namespace {

using jinja::Dict;
using jinja::Interpreter;
using jinja::OriginText;
using jinja::Value;

constexpr int64_t kMaxTemplateBytes = 4 << 20;  // Published ones stay below 100 KB.
constexpr int64_t kMaxConfigBytes = 64 << 20;   // added_tokens_decoder makes some large.
// Variables that the request sets by other fields.
constexpr std::array<std::string_view, 5> kReserved = {"messages", "tools", "documents", "add_generation_prompt",
                                                       "strftime_now"};

Value UserText(const std::string_view text) { return Value::Of(OriginText(text, ControlTokens::kStayText)); }

void AddEntry(Dict& dict, const std::string_view key, Value value) {
  dict.entries.emplace_back(Value::OfTemplate(key), std::move(value));
}

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(jinja::Body body, Interpreter::Bindings special_tokens)
      : body_(std::move(body)), special_tokens_(std::move(special_tokens)) {}

  StatusOr<std::vector<PromptPiece>> Render(const ChatRequest& request, const RenderLimits& limits) const override;

 private:
  const jinja::Body body_;
  const Interpreter::Bindings special_tokens_;  // bos_token and so on.
};

Value ContentParts(const std::vector<std::string>& texts) {
  std::vector<Value> parts;
  for (const std::string& text : texts) {
    Dict part;
    AddEntry(part, "type", Value::OfTemplate("text"));
    AddEntry(part, "text", UserText(text));
    parts.push_back(Value::OfDict(std::move(part)));
  }
  return Value::OfList(std::move(parts));
}

// The dict that stands for a message. Absent fields have no key, as in requests of other servers.
StatusOr<Value> MessageValue(const ChatMessage& message, const std::string& field) {
  Dict dict;
  AddEntry(dict, "role", UserText(message.role));
  if (message.content && !message.content_parts.empty()) {
    return InvalidArgument(field + ": content and content_parts exclude each other", field + ".content_parts");
  }
  if (message.content) AddEntry(dict, "content", UserText(*message.content));
  if (!message.content_parts.empty()) AddEntry(dict, "content", ContentParts(message.content_parts));
  if (!message.name.empty()) AddEntry(dict, "name", UserText(message.name));
  if (!message.reasoning_content.empty()) AddEntry(dict, "reasoning_content", UserText(message.reasoning_content));
  if (!message.tool_calls_json.empty()) {
    StatusOr<Value> calls = jinja::ParseJsonValue(message.tool_calls_json, field + ".tool_calls_json");
    if (!calls.ok()) return calls.status();
    if (calls->list() == nullptr)
      return InvalidArgument(field + ".tool_calls_json: wanted a JSON array", field + ".tool_calls_json");
    AddEntry(dict, "tool_calls", *std::move(calls));
  }
  if (!message.tool_call_id.empty()) AddEntry(dict, "tool_call_id", UserText(message.tool_call_id));
  return Value::OfDict(std::move(dict));
}

StatusOr<Value> MessagesValue(const std::vector<ChatMessage>& messages) {
  std::vector<Value> values;
  for (size_t i = 0; i < messages.size(); ++i) {
    StatusOr<Value> value = MessageValue(messages[i], "messages[" + std::to_string(i) + "]");
    if (!value.ok()) return value.status();
    values.push_back(*std::move(value));
  }
  return Value::OfList(std::move(values));
}

StatusOr<Value> ToolsValue(const std::string& json) {
  if (json.empty()) return Value::OfNone();
  StatusOr<Value> tools = jinja::ParseJsonValue(json, "tools_json");
  if (tools.ok() && tools->list() == nullptr) return InvalidArgument("tools_json: wanted a JSON array", "tools_json");
  return tools;
}

// Adds the caller's own variables; they win over special tokens, as in transformers.
Status AddOptions(const std::string& json, const int64_t options_max, Interpreter::Bindings& bindings) {
  if (json.empty()) return OkStatus();
  const StatusOr<Value> options = jinja::ParseJsonValue(json, "template_options_json");
  if (!options.ok()) return options.status();
  if (options->dict() == nullptr)
    return InvalidArgument("template_options_json: wanted a JSON object", "template_options_json");
  const auto& entries = options->dict()->entries;
  if (static_cast<int64_t>(entries.size()) > options_max) {
    return InvalidArgument("template_options_json: at most " + std::to_string(options_max) + " members, found " +
                               std::to_string(entries.size()),
                           "template_options_json");
  }
  for (const auto& [key, value] : entries) {
    const std::string name(key.bytes());
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
      return InvalidArgument("template_options_json: \"" + name + "\" is set by another field of the request",
                             "template_options_json");
    }
    bindings[name] = value;
  }
  return OkStatus();
}

// Cuts the rendered text behind the last message's content, so that the model goes on with it.
StatusOr<OriginText> CutForContinuation(const OriginText& rendered, const ChatMessage& last) {
  const std::string content = last.content_parts.empty() ? last.content.value_or("") : last.content_parts.back();
  const OriginText text(content, ControlTokens::kStayText);
  const std::string stripped = jinja::Strip(text, "", jinja::Side::kBoth).bytes();
  const size_t at = stripped.empty() ? std::string::npos : jinja::FindLast(rendered.bytes(), stripped);
  if (at == std::string::npos) {
    return InvalidArgument(
        "continue_final_message: the last message's content is empty, or the template does not show it",
        "continue_final_message");
  }
  // White space at its end stays where the template kept it.
  const std::string kept = jinja::Strip(text, "", jinja::Side::kLeft).bytes();
  const bool whole = rendered.bytes().compare(at, kept.size(), kept) == 0;
  return rendered.Slice(0, at + (whole ? kept.size() : stripped.size()));
}

StatusOr<std::vector<PromptPiece>> JinjaTemplate::Render(const ChatRequest& request, const RenderLimits& limits) const {
  if (request.messages.empty()) return InvalidArgument("messages: at least one is wanted", "messages");
  if (request.continue_final_message && request.add_generation_prompt) {
    return InvalidArgument("continue_final_message excludes add_generation_prompt", "continue_final_message");
  }
  StatusOr<Value> messages = MessagesValue(request.messages);
  if (!messages.ok()) return messages.status();
  StatusOr<Value> tools = ToolsValue(request.tools_json);
  if (!tools.ok()) return tools.status();
  Interpreter::Bindings bindings = special_tokens_;
  if (Status s = AddOptions(request.template_options_json, limits.options_max, bindings); !s.ok()) return s;
  bindings["messages"] = *std::move(messages);
  bindings["tools"] = *std::move(tools);
  bindings["documents"] = Value::OfNone();
  bindings["add_generation_prompt"] = Value::Of(request.add_generation_prompt);
  Interpreter interpreter(std::move(bindings), request.now_unix_seconds, limits.interrupted);
  StatusOr<OriginText> text = interpreter.Render(body_);
  if (text.ok() && request.continue_final_message) text = CutForContinuation(*text, request.messages.back());
  if (!text.ok()) return text.status();
  return text->Pieces();
}

// The special tokens that templates print: strings, or objects with `content`.
Interpreter::Bindings SpecialTokens(const nlohmann::json& config) {
  Interpreter::Bindings bindings;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const nlohmann::json& value = Member(config, name);
    const nlohmann::json& content = value.is_object() ? Member(value, "content") : value;
    if (content.is_string()) bindings[name] = Value::OfTemplate(content.get<std::string>());
  }
  return bindings;
}

// `chat_template` of tokenizer_config.json: a string, or a list of {name, template} whose "default" counts.
StatusOr<std::string> TemplateOfConfig(const nlohmann::json& config, const std::string& file) {
  const nlohmann::json& entry = Member(config, "chat_template");
  if (entry.is_null()) return std::string();
  if (entry.is_string()) return entry.get<std::string>();
  for (const nlohmann::json& named : entry.is_array() ? entry : nlohmann::json::array()) {
    const nlohmann::json& text = Member(named, "template");
    if (Member(named, "name") == "default" && text.is_string()) return text.get<std::string>();
  }
  return UnsupportedField(file, "chat_template", "a string, or a list with a template named default", nullptr);
}

}  // namespace

StatusOr<std::unique_ptr<ChatTemplate>> LoadChatTemplate(const std::string& folder) {
  const std::string config_file = folder + "/tokenizer_config.json", template_file = folder + "/chat_template.jinja";
  nlohmann::json config;
  if (std::filesystem::exists(config_file)) {
    const StatusOr<std::string> bytes = ReadFile(config_file, kMaxConfigBytes);
    if (!bytes.ok()) return bytes.status();
    StatusOr<nlohmann::json> json = ParseStrictJson(*bytes, config_file);
    if (!json.ok()) return json.status();
    config = *std::move(json);
  }
  const bool own_file = std::filesystem::exists(template_file);
  StatusOr<std::string> source =
      own_file ? ReadFile(template_file, kMaxTemplateBytes) : TemplateOfConfig(config, config_file);
  if (!source.ok()) return source.status();
  if (source->empty() && !own_file) return std::unique_ptr<ChatTemplate>();
  const std::string& file = own_file ? template_file : config_file;
  for (size_t at = 0; at < source->size();) {
    const Utf8Char next = DecodeUtf8(*source, at);
    if (next.code_point == Utf8Char::kInvalidByte) {
      return InvalidArgument(fmt::format("{}: wanted UTF-8, found another byte at {}", file, at), "chat_template");
    }
    at += static_cast<size_t>(next.bytes);
  }
  StatusOr<jinja::Body> body = jinja::ParseTemplate(*source);
  if (!body.ok()) return InvalidArgument(file + ": " + body.status().message(), "chat_template");
  return std::unique_ptr<ChatTemplate>(std::make_unique<JinjaTemplate>(*std::move(body), SpecialTokens(config)));
}

}  // namespace invar::models
