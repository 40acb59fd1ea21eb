// Texts and chats to tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "invar/v1/generation.pb.h"
#include "server/wire/translate.h"

namespace invar::server {

struct Prompt {
  std::vector<TokenId> tokens;
  // Of a chat: those before the generation prompt; the next turn repeats them. 0: not known.
  int32_t stable_tokens = 0;
};

// Errors: as TranslateGenerate, of its input.
StatusOr<Prompt> PromptOf(const v1::GenerateRequest& proto, const TranslateContext& context);
// Name of the field that the prompt comes from.
const char* InputField(const v1::GenerateRequest& proto);

}  // namespace invar::server
