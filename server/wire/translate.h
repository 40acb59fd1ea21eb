// The border between wire and engine: the only place that turns proto messages into engine structs and back.
//   translate_prompt.h      texts and chats to tokens
//   translate_options.h     sampling, stopping, output
//   translate_kv_policy.h   exactness, drafts, compressed KV, transfer
//   translate_answer.h      events to messages
// Here it is judged what only the wire knows (features that are missing, names, texts, chats, n), what a reload may
// change (priority), and how many entries a list may have, before anything is allocated by it. The ranges of all other
// numbers and of ids stand in engine/validate.h alone: Engine::Submit judges them, by the field names of the wire.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "engine/request.h"
#include "engine/validate.h"
#include "invar/v1/generation.pb.h"
#include "models/model.h"
#include "models/text.h"
#include "server/wire/hand_off.h"
#include "server/wire/translate_answer.h"

namespace invar::server {

// What a request is judged against. Borrows; lives as long as one call.
struct TranslateContext {
  const std::string& model_name;
  const models::ModelSpec& spec;
  const engine::RequestLimits& request_limits;  // The engine's.
  const models::Tokenizer& tokenizer;
  const models::ChatTemplate* chat_template;  // Null: chat is refused.
  const models::GenerationDefaults& defaults;
  const config::Config::Limits& limits;
  const std::vector<std::string>& drafters;                // Engine::drafters
  const config::Config::Engine::Speculation& speculation;  // What LOSSLESS requests get where they name nothing.
  const config::Config::Engine::Approximate& approximate;  // What APPROXIMATE ones get that say nothing.
  const config::Config::Transfer& transfer;                // Alike, of prefixes from other instances.
  const HandOffs* hand_offs;                               // Null: none are signed or understood.
  // Asked while a template runs and while text is tokenized: not OK ends the preparation with that status. Empty: never
  // asked.
  std::function<Status()> interrupted;
};

struct TranslatedRequest {
  engine::Request request;
  AnswerForm form;
};

// Requires: the result goes through Engine::Submit, which judges its numbers.
// Errors: INVALID_ARGUMENT with the field named; NOT_FOUND (model); UNIMPLEMENTED naming the field whose feature this
// build lacks. Time: tokenizes and renders, so not on the engine thread. `request.deadline` is left to the caller.
StatusOr<TranslatedRequest> TranslateGenerate(const v1::GenerateRequest& proto, const std::string& tenant,
                                              const TranslateContext& context);

// Errors: as above.
StatusOr<std::vector<TokenId>> TranslateTokenize(const v1::TokenizeRequest& proto, const TranslateContext& context);
StatusOr<std::string> TranslateDetokenize(const v1::DetokenizeRequest& proto, const TranslateContext& context);
StatusOr<v1::RenderChatResponse> TranslateRenderChat(const v1::RenderChatRequest& proto,
                                                     const TranslateContext& context);
v1::ModelInfo TranslateModelInfo(const std::string& name, const models::ModelSpec& spec,
                                 const engine::RequestLimits& limits);

}  // namespace invar::server
