// Chat requests of test data: messages as other servers' clients write them.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "models/text.h"

namespace invar::models {

inline ChatMessage MessageFromJson(const nlohmann::ordered_json& json) {
  ChatMessage message;
  message.role = json.value("role", "");
  if (json.contains("content") && json["content"].is_string()) message.content = json["content"].get<std::string>();
  if (json.contains("content") && json["content"].is_array()) {
    for (const auto& part : json["content"]) message.content_parts.push_back(part["text"].get<std::string>());
  }
  message.name = json.value("name", "");
  message.reasoning_content = json.value("reasoning_content", "");
  message.tool_call_id = json.value("tool_call_id", "");
  if (json.contains("tool_calls")) message.tool_calls_json = json["tool_calls"].dump();
  return message;
}

// Members: messages, tools, options (template variables), add_generation_prompt, now. All but messages may be absent.
inline ChatRequest RequestFromJson(const nlohmann::ordered_json& json) {
  ChatRequest request;
  for (const auto& message : json["messages"]) request.messages.push_back(MessageFromJson(message));
  if (json.contains("tools") && !json["tools"].is_null()) request.tools_json = json["tools"].dump();
  if (json.contains("options")) request.template_options_json = json["options"].dump();
  request.add_generation_prompt = json.value("add_generation_prompt", false);
  if (json.contains("now")) request.now_unix_seconds = json["now"].get<int64_t>();
  return request;
}

inline const RenderLimits kTestLimits{.options_max = 64, .interrupted = {}};

inline std::string JoinPieces(std::span<const PromptPiece> pieces) {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace invar::models
