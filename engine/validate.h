// The one judge of what a request's numbers may be: every number has a range, every id is checked before anything uses
// it as an index. Who needs a part of it earlier (a length before its tokens are copied, an id that never becomes a
// request) asks the same functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/request.h"

namespace invar::engine {

// Reason of a status where the prompt alone exceeds what may be sent, as text, chat or ids.
inline constexpr char kPromptTooLong[] = "PROMPT_TOO_LONG";

struct RequestLimits {
  int32_t usable_ids = 0;           // Token ids are in [0, usable_ids).
  int32_t max_sequence_tokens = 0;  // The model's.
  int32_t page_tokens = 0;
  int32_t pages = 0;      // Of the whole pool.
  bool has_text = false;  // A tokenizer is there.
  int64_t stop_strings_max = 0;
  int64_t stop_string_bytes_max = 0;
  int64_t logprobs_max = 0;                // Alternatives a token: bounds a reply at so many x 8 bytes a token.
  std::vector<std::string> drafters = {};  // Kinds there are; none where the engine does not speculate.
  std::map<std::string, std::string> refused_drafters = {};      // Kinds that cannot draft for the model, and why.
  std::set<std::string, std::less<>> compressing_drafters = {};  // Of `drafters`, those that take a compressor.
  int32_t draft_tokens_max = 0;
  std::string why_no_views = {};  // Why nothing is answered on compressed views; empty: it can be.
};

// Most tokens one request may take, prompt and output together: the model's limit or what the KV budget holds,
// whichever is smaller.
int32_t MaxRequestTokens(const RequestLimits& limits);
// Of an approximate one, the same or fewer: a view of keys that are like no others takes more than the KV it stands
// for, by its degrees.
int32_t MaxApproximateTokens(const RequestLimits& limits);

// Errors: INVALID_ARGUMENT naming `field`.
Status CheckTokenId(int32_t id, const RequestLimits& limits, std::string_view field);

// Errors: INVALID_ARGUMENT naming `field`, with reason PROMPT_TOO_LONG beyond MaxRequestTokens.
Status CheckPromptLength(int64_t tokens, const RequestLimits& limits, std::string_view field);

// That status where counting stopped at the limit. `found`: what is known of the length.
Status PromptTooLong(std::string_view found, const RequestLimits& limits, std::string_view field);

// Output tokens the request may really get: max_tokens, cut where the model's limit ends the sequence.
int32_t OutputLimit(const Request& request, const RequestLimits& limits);

// What a view is for: answers are computed on it, and their latest queries are recorded; or drafts are guessed on it.
enum class ViewUse { kAnswers, kDrafts };
// Errors: INVALID_ARGUMENT naming `field`: no compressor, or one that goes by what is not recorded for this use.
Status CheckCompressor(const std::string& compressor, ViewUse use, std::string_view field);

// What the caller calls the two.
struct ViewFields {
  std::string_view compressor;
  std::string_view kv_budget;
};
// Errors: INVALID_ARGUMENT naming the field: as CheckCompressor; a budget of a kind that keeps all, or none of another.
Status CheckView(const std::string& compressor, ViewUse use, const std::optional<float>& kv_budget,
                 const ViewFields& fields);

// Whether it is a compressor that must be told how many tokens may keep a slot.
bool TakesBudget(const std::string& compressor);

// Errors name the field, the prompt as request.prompt_field: INVALID_ARGUMENT (a value outside its range; a prompt
// beyond what may be, as CheckPromptLength), RESOURCE_EXHAUSTED (prompt and output together could never fit the KV
// pool). Threads: any.
Status ValidateRequest(const Request& request, const RequestLimits& limits);

}  // namespace invar::engine
