// Text in, tokens out, and back: the face of models/text/.
// A Tokenizer and a ChatTemplate are immutable after loading and may be used by any number of threads at once;
// a Detokenizer belongs to one output stream. Reads Hugging Face layouts (tokenizer.json, tokenizer_config.json,
// chat_template.jinja); ids equal those of the `tokenizers` library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace invar::models {

// Longest text that is tokenized, and longest string and prompt of a chat template: millions of tokens, far above any
// context length. The configuration's limits.text_bytes_max ends here too.
inline constexpr size_t kTextBytesMax = size_t{16} << 20;

// What control tokens written in the input text become.
enum class ControlTokens {
  kStayText,  // "<|im_end|>" in the text is tokenized like any other text: for what users write.
  kParse,     // Added tokens in the text become their ids: for what templates write.
};

// A piece of rendered prompt: template text may hold control tokens, user text may not.
struct PromptPiece {
  std::string text;
  ControlTokens control;
};

// How far one encoding may go.
struct EncodeLimits {
  int64_t tokens_max = INT64_MAX;
  // Asked every few milliseconds of work: not OK ends the encoding with that status. Empty: never asked.
  std::function<Status()> interrupted;
};

// Ids of a text, and how many of them at its begin another text has too.
struct EncodedBeside {
  std::vector<TokenId> ids;
  size_t shared = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Token ids of `text` (any bytes; invalid UTF-8 goes through the byte path). `add_special` adds BOS/EOS as the
  // post-processor says. Errors: RESOURCE_EXHAUSTED where `text` exceeds the size limit; OUT_OF_RANGE where it has more
  // than limits.tokens_max tokens; what limits.interrupted gave. What the vocabulary cannot spell, without byte
  // fallback and unknown token, is left out, as by that library. Time linear in the text up to a logarithm. Threads:
  // any.
  virtual StatusOr<std::vector<TokenId>> Encode(std::string_view text, ControlTokens control, bool add_special,
                                                const EncodeLimits& limits) const = 0;

  // Ids of rendered pieces, without BOS/EOS (templates write their own). Pieces are joined before tokenizing, so that
  // ids equal those of the whole text whenever users write no control tokens; an added token is recognised only where
  // all its bytes are kParse, whichever pieces they lie in. Errors, time and threads: as Encode.
  virtual StatusOr<std::vector<TokenId>> EncodePieces(std::span<const PromptPiece> pieces,
                                                      const EncodeLimits& limits) const = 0;

  // As EncodePieces of `pieces`, with the length of the begin that its ids have in common with those of `beside`. Of
  // `beside` only what differs is tokenized, up to the first piece of text that tells: the count is exact where the
  // texts differ in their last part, and otherwise may be lower.
  virtual StatusOr<EncodedBeside> EncodeBeside(std::span<const PromptPiece> pieces, std::span<const PromptPiece> beside,
                                               const EncodeLimits& limits) const = 0;

  // One-shot text of `ids`; what is not whole UTF-8 becomes U+FFFD. Ids outside the vocabulary decode to nothing.
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special) const = 0;

  // Raw bytes one token stands for (no leading-space stripping; empty for skipped specials when `skip_special`).
  virtual std::string TokenBytes(TokenId id, bool skip_special) const = 0;

  // Number of ids that the tokenizer knows: ids at or above it are padding rows of the embedding and never sampled.
  virtual int32_t vocabulary_size() const = 0;
  virtual std::optional<TokenId> FindToken(std::string_view content) const = 0;
  // Whether decode(skip_special) drops the id.
  virtual bool IsSpecial(TokenId id) const = 0;
  // Whether decoding strips one leading space of the whole text (SentencePiece-style tokenizers).
  virtual bool strips_leading_space() const = 0;
};

// Loads `folder`/tokenizer.json. Errors: NOT_FOUND, INVALID_ARGUMENT naming file, key, wanted and found, for any
// normalizer, pre-tokenizer, model or post-processor it does not implement exactly.
StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& folder);

// Incremental detokenization of one output: Append gives the text that became certain, always whole UTF-8;
// Finish gives the rest, a dangling partial character as one U+FFFD. Concatenation equals Tokenizer::Decode.
class Detokenizer {
 public:
  // Requires: `tokenizer` outlives this.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special);
  std::string Append(TokenId id);
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool strip_next_space_;
  std::string pending_;  // Bytes of a character that is not whole yet: at most 3.
};

struct ChatMessage {
  std::string role;
  std::optional<std::string> content;
  std::vector<std::string> content_parts;  // Instead of content.
  std::string name;
  std::string tool_calls_json;
  std::string reasoning_content;
  std::string tool_call_id;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::string tools_json;             // JSON array or empty.
  std::string template_options_json;  // JSON object or empty; reserved names (messages, tools, ...) are refused.
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // The last message is left open, to be continued.
  // What strftime_now tells the template, in UTC. Absent: the template has no clock and takes its fixed date, so that
  // the same request always gives the same prompt.
  std::optional<int64_t> now_unix_seconds;
};

// How far one rendering may go, beside the budgets of depth, steps and size.
struct RenderLimits {
  int64_t options_max = 0;  // Members of template_options_json.
  // Asked every few milliseconds of work: not OK ends the rendering with that status. Empty: never asked.
  std::function<Status()> interrupted;
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Renders as jinja2 with transformers' settings does, within depth, step and size budgets. The pieces concatenate to
  // the rendered text; characters that came from message values are kStayText, so that a control token spelt by a user
  // stays text however the template cuts and joins. Errors: INVALID_ARGUMENT (raise_exception's text, bad JSON field,
  // budget); what `limits.interrupted` gave. Threads: any, not the engine's.
  virtual StatusOr<std::vector<PromptPiece>> Render(const ChatRequest& request, const RenderLimits& limits) const = 0;
};

// From chat_template.jinja, else tokenizer_config.json. Null where the model has none.
// Errors: INVALID_ARGUMENT naming the construct and line that the subset does not know.
StatusOr<std::unique_ptr<ChatTemplate>> LoadChatTemplate(const std::string& folder);

}  // namespace invar::models
