// Limits of requests and of those that wait.
#include <chrono>

#include "config/fields/sections.h"

namespace invar::config {

using std::chrono::hours;
using std::chrono::milliseconds;

std::vector<Field> LimitFields() {
  return {
      {"limits.request_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.limits.request_timeout; }, milliseconds(1), hours(24)},
       "Longest life of a request of any kind, queue included; an earlier deadline of the caller wins.",
       Takes::kOnReload},
      {"limits.open_request_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.limits.open_request_bytes_max; }, kMiB, kTiB},
       "Memory of the requests, those of other instances for prefixes among them, and of the answers of unary calls, "
       "of all open calls together; what exceeds it gets RESOURCE_EXHAUSTED.",
       Takes::kOnReload},
      {"limits.refused_request_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.limits.refused_request_bytes_max; }, 0, kTiB},
       "Memory of the requests of calls that were refused (no token, a limit) and have not taken their status yet; "
       "what exceeds it is reset without one.",
       Takes::kOnReload},
      {"limits.preparing_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.preparing_max; }, 1, 1'000'000},
       "Most calls that wait to be tokenized or rendered; further ones get RESOURCE_EXHAUSTED."},
      {"limits.tenant_share_percent",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.tenant_share_percent; }, 1, 100},
       "Where auth.tokens name several tenants: most that one may take of limits.open_request_bytes_max, of "
       "limits.preparing_max, of transfer.bytes_max on the way out, and in Generate calls of engine.running_max and "
       "queue_max together.",
       Takes::kOnReload},
      {"limits.text_bytes_max", BytesKind{+[](Config& c) -> int64_t& { return c.limits.text_bytes_max; }, 1, 16 * kMiB},
       "Largest text, chat or other string input of one request, all strings together.", Takes::kOnReload},
      {"limits.stop_strings_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.stop_strings_max; }, 0, 1024},
       "Most stop strings of one request."},
      {"limits.stop_string_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.limits.stop_string_bytes_max; }, 1, 64 * kKiB},
       "Longest stop string."},
      {"limits.stop_token_ids_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.stop_token_ids_max; }, 0, 65536},
       "Most stop token ids of one request.", Takes::kOnReload},
      {"limits.logit_bias_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.logit_bias_max; }, 0, 1'000'000},
       "Most logit_bias entries of one request.", Takes::kOnReload},
      {"limits.allowed_token_ids_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.allowed_token_ids_max; }, 0, 1'000'000},
       "Most allowed_token_ids of one request.", Takes::kOnReload},
      {"limits.logprobs_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.logprobs_max; }, 0, 1000},
       "Most alternatives beside the chosen token, for logprobs and prompt_logprobs."},
      {"limits.message_logprobs_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.message_logprobs_max; }, 0, 1'000'000},
       "Most log-probabilities of one message, tokens x (1 + alternatives), of the prompt and, without stream, of the "
       "output: keeps it below the 4 MiB that gRPC clients take.",
       Takes::kOnReload},
      {"limits.chat_messages_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.chat_messages_max; }, 1, 1'000'000},
       "Most messages and message parts of one chat.", Takes::kOnReload},
      {"limits.template_options_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.template_options_max; }, 0, 65536},
       "Most members of a chat's template_options_json.", Takes::kOnReload},
      {"limits.checkpoint_hints_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.checkpoint_hints_max; }, 0, 65536},
       "Most checkpoint_hints of one request.", Takes::kOnReload},
      {"limits.salt_bytes_max", BytesKind{+[](Config& c) -> int64_t& { return c.limits.salt_bytes_max; }, 0, 64 * kKiB},
       "Longest cache salt.", Takes::kOnReload},
      {"limits.priority_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.priority_max; }, 0, 1'000'000},
       "Highest scheduling priority a request may ask for; the lowest is its negative.", Takes::kOnReload},
      {"limits.stream_buffer", BytesKind{+[](Config& c) -> int64_t& { return c.limits.stream_buffer; }, kKiB, kGiB},
       "Output kept for one reader that lags; its request pauses beyond that.", Takes::kOnReload},
      {"limits.slow_reader_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.limits.slow_reader_timeout; }, milliseconds(100), hours(24)},
       "A reader that stays behind so long is cut off; one that then takes not even its status, or not the answer of a "
       "unary call, is reset after as long again and two seconds."},
  };
}

}  // namespace invar::config
