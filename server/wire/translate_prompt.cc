// See translate_prompt.h; and the calls that only turn texts into tokens, or back.
#include "server/wire/translate_prompt.h"

#include <string>
#include <utility>

#include "engine/validate.h"
#include "server/wire/translate_fields.h"

namespace invar::server {
namespace {

constexpr size_t kRoleBytesMax = 64;

// As CheckBytes, of what becomes the prompt.
Status CheckPromptBytes(const std::string_view field, const size_t bytes, const TranslateContext& context) {
  Status s = CheckBytes(field, bytes, context.limits.text_bytes_max);
  if (s.ok()) return s;
  return std::move(s).WithReason(engine::kPromptTooLong);
}

Status CheckMessage(const v1::ChatMessage& message, const std::string& field) {
  if (message.role().empty()) return InvalidArgument(fmt::format("{}.role: is required", field), field + ".role");
  if (Status s = CheckBytes(field + ".role", message.role().size(), kRoleBytesMax); !s.ok()) return s;
  if (!message.content().empty() && message.content_parts_size() > 0) {
    return InvalidArgument(fmt::format("{}.content_parts: excludes content", field), field + ".content_parts");
  }
  return OkStatus();
}

size_t TextBytes(const v1::ChatMessage& message) {
  size_t bytes = message.role().size() + message.content().size() + message.name().size() +
                 message.tool_calls_json().size() + message.reasoning_content().size() + message.tool_call_id().size();
  for (const std::string& part : message.content_parts()) bytes += part.size();
  return bytes;
}

Status CheckChat(const v1::Chat& chat, const TranslateContext& context) {
  if (context.chat_template == nullptr) return InvalidArgument("chat: the model has no chat template", "chat");
  if (chat.messages_size() == 0) return InvalidArgument("chat.messages: at least one message", "chat.messages");
  int64_t entries = chat.messages_size();
  size_t bytes = chat.tools_json().size() + chat.template_options_json().size();
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    if (Status s = CheckMessage(message, fmt::format("chat.messages[{}]", i)); !s.ok()) return s;
    entries += message.content_parts_size();
    bytes += TextBytes(message);
  }
  if (Status s = CheckCount("chat.messages", entries, context.limits.chat_messages_max); !s.ok()) return s;
  return CheckPromptBytes("chat", bytes, context);
}

models::ChatMessage ToChatMessage(const v1::ChatMessage& proto) {
  models::ChatMessage message;
  message.role = proto.role();
  // An assistant message that only calls tools has no content; templates tell that from an empty one.
  const bool absent = proto.content().empty() && (!proto.tool_calls_json().empty() || proto.content_parts_size() > 0);
  if (!absent) message.content = proto.content();
  message.content_parts.assign(proto.content_parts().begin(), proto.content_parts().end());
  message.name = proto.name();
  message.tool_calls_json = proto.tool_calls_json();
  message.reasoning_content = proto.reasoning_content();
  message.tool_call_id = proto.tool_call_id();
  return message;
}

StatusOr<std::vector<models::PromptPiece>> RenderChat(const v1::Chat& chat, const bool add_generation_prompt,
                                                      const TranslateContext& context) {
  if (Status s = CheckChat(chat, context); !s.ok()) return s;
  models::ChatRequest request;
  for (const v1::ChatMessage& message : chat.messages()) request.messages.push_back(ToChatMessage(message));
  request.tools_json = chat.tools_json();
  request.template_options_json = chat.template_options_json();
  request.add_generation_prompt = add_generation_prompt && !chat.continue_final_message();
  request.continue_final_message = chat.continue_final_message();
  StatusOr<std::vector<models::PromptPiece>> pieces = context.chat_template->Render(
      request, {.options_max = context.limits.template_options_max, .interrupted = context.interrupted});
  if (!pieces.ok()) {
    // The template knows its own fields only; the caller knows them below `chat`.
    const Status& inner = pieces.status();
    if (inner.code() != StatusCode::kInvalidArgument) return inner;  // Interrupted.
    if (inner.field().empty()) return Status(inner.code(), fmt::format("chat: {}", inner.message()), "chat");
    // What a template says by itself, in its own words, names no field.
    const std::string field = "chat." + inner.field();
    if (!inner.message().starts_with(inner.field())) {
      return Status(inner.code(), fmt::format("{}: {}", field, inner.message()), field);
    }
    return Status(inner.code(), fmt::format("chat.{}", inner.message()), field);
  }
  return pieces;
}

bool WantsGenerationPrompt(const v1::Chat& chat) {
  return !chat.has_add_generation_prompt() || chat.add_generation_prompt();
}

// What tokenizing a prompt may cost: no more than the longest prompt has tokens, and only while somebody waits.
models::EncodeLimits PromptLimits(const TranslateContext& context) {
  return {.tokens_max = engine::MaxRequestTokens(context.request_limits), .interrupted = context.interrupted};
}

// The tokenizer knows no fields, and stops where the prompt is too long.
Status EncodeError(const Status& status, const std::string& field, const TranslateContext& context) {
  if (status.code() == StatusCode::kOutOfRange) return engine::PromptTooLong("more", context.request_limits, field);
  if (status.code() == StatusCode::kCancelled || status.code() == StatusCode::kDeadlineExceeded) return status;
  return Status(status.code(), fmt::format("{}: {}", field, status.message()), field);
}

StatusOr<Prompt> AsPrompt(StatusOr<std::vector<TokenId>> tokens, const std::string& field,
                          const TranslateContext& context) {
  if (!tokens.ok()) return EncodeError(tokens.status(), field, context);
  return Prompt{.tokens = *std::move(tokens)};
}

// The tokens that a chat's prompt has in common with what is rendered of its messages alone. Thinking templates write
// the generation prompt anew in the next turn, so what follows is not worth keeping for it.
StatusOr<Prompt> ChatPromptOf(const v1::Chat& chat, const TranslateContext& context) {
  const bool generation_prompt = WantsGenerationPrompt(chat);
  const StatusOr<std::vector<models::PromptPiece>> pieces = RenderChat(chat, generation_prompt, context);
  if (!pieces.ok()) return pieces.status();
  const auto plain = [&]() -> StatusOr<Prompt> {
    return AsPrompt(context.tokenizer.EncodePieces(*pieces, PromptLimits(context)), "chat", context);
  };
  if (!generation_prompt || chat.continue_final_message()) return plain();
  const StatusOr<std::vector<models::PromptPiece>> messages =
      RenderChat(chat, /*add_generation_prompt=*/false, context);
  if (!messages.ok()) return plain();  // A template that cannot: then nothing is known to be stable.
  StatusOr<models::EncodedBeside> encoded = context.tokenizer.EncodeBeside(*pieces, *messages, PromptLimits(context));
  if (!encoded.ok()) return EncodeError(encoded.status(), "chat", context);
  return Prompt{.tokens = std::move(encoded->ids), .stable_tokens = static_cast<int32_t>(encoded->shared)};
}

}  // namespace

StatusOr<Prompt> PromptOf(const v1::GenerateRequest& proto, const TranslateContext& context) {
  if (proto.add_special() && proto.input_case() != v1::GenerateRequest::kText) {
    return InvalidArgument("add_special: goes with text only", "add_special");
  }
  switch (proto.input_case()) {
    case v1::GenerateRequest::kText: {
      if (Status s = CheckPromptBytes("text", proto.text().size(), context); !s.ok()) return s;
      return AsPrompt(context.tokenizer.Encode(proto.text(), models::ControlTokens::kStayText, proto.add_special(),
                                               PromptLimits(context)),
                      "text", context);
    }
    case v1::GenerateRequest::kTokens: {
      // Length first: the copy below is then bounded by the model's limit.
      if (Status s = engine::CheckPromptLength(proto.tokens().ids_size(), context.request_limits, "tokens.ids");
          !s.ok()) {
        return s;
      }
      return Prompt{.tokens = ToTokenIds(proto.tokens().ids())};
    }
    case v1::GenerateRequest::kChat:
      return ChatPromptOf(proto.chat(), context);
    case v1::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return InvalidArgument("input: give one of text, tokens, chat", "input");
}

const char* InputField(const v1::GenerateRequest& proto) {
  switch (proto.input_case()) {
    case v1::GenerateRequest::kText:
      return "text";
    case v1::GenerateRequest::kChat:
      return "chat";
    default:
      return "tokens.ids";
  }
}

StatusOr<std::vector<TokenId>> TranslateTokenize(const v1::TokenizeRequest& proto, const TranslateContext& context) {
  if (Status s = CheckModel(proto.model(), context); !s.ok()) return s;
  if (Status s = CheckBytes("text", proto.text().size(), context.limits.text_bytes_max); !s.ok()) return s;
  StatusOr<std::vector<TokenId>> ids = context.tokenizer.Encode(
      proto.text(), proto.parse_special() ? models::ControlTokens::kParse : models::ControlTokens::kStayText,
      proto.add_special(), {.interrupted = context.interrupted});
  if (!ids.ok()) return EncodeError(ids.status(), "text", context);
  return ids;
}

StatusOr<std::string> TranslateDetokenize(const v1::DetokenizeRequest& proto, const TranslateContext& context) {
  if (Status s = CheckModel(proto.model(), context); !s.ok()) return s;
  if (Status s = CheckCount("ids", proto.ids_size(), context.limits.text_bytes_max); !s.ok()) return s;
  // Token by token, so that many ids of long tokens are refused before their text fills the memory.
  models::Detokenizer detokenizer(context.tokenizer, proto.skip_special());
  constexpr int kAskEvery = 4096;  // Below a millisecond.
  std::string text;
  for (int i = 0; const int32_t id : proto.ids()) {
    if (i++ % kAskEvery == 0 && context.interrupted) {
      if (Status s = context.interrupted(); !s.ok()) return s;
    }
    if (Status s = engine::CheckTokenId(id, context.request_limits, "ids"); !s.ok()) return s;
    text += detokenizer.Append(TokenId(id));
    if (Status s = CheckBytes("ids", text.size(), context.limits.text_bytes_max); !s.ok()) return s;
  }
  return text + detokenizer.Finish();
}

StatusOr<v1::RenderChatResponse> TranslateRenderChat(const v1::RenderChatRequest& proto,
                                                     const TranslateContext& context) {
  if (Status s = CheckModel(proto.model(), context); !s.ok()) return s;
  // What the chat says wins over the request's own switch, a plain bool that cannot be silent.
  const bool prompt =
      proto.chat().has_add_generation_prompt() ? proto.chat().add_generation_prompt() : proto.add_generation_prompt();
  const StatusOr<std::vector<models::PromptPiece>> pieces = RenderChat(proto.chat(), prompt, context);
  if (!pieces.ok()) return pieces.status();
  const StatusOr<std::vector<TokenId>> ids =
      context.tokenizer.EncodePieces(*pieces, {.interrupted = context.interrupted});
  if (!ids.ok()) return EncodeError(ids.status(), "chat", context);
  v1::RenderChatResponse response;
  for (const models::PromptPiece& piece : *pieces) response.mutable_text()->append(piece.text);
  for (const TokenId id : *ids) response.add_ids(id.value());
  return response;
}

}  // namespace invar::server
