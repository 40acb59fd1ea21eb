// Ranges are written as !(x >= low && x <= high), which NaN fails too.
#include "engine/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/field_value.h"
#include "cache/compressor.h"
#include "engine/compressed/query_log.h"

namespace invar::engine {
namespace {

constexpr float kBiasMax = 100.0F;  // OpenAI's range; more than any logit difference that matters.

Status CheckIds(const std::vector<TokenId>& ids, const RequestLimits& limits, const char* const field) {
  for (const TokenId id : ids) {
    if (Status s = CheckTokenId(id.value(), limits, field); !s.ok()) return s;
  }
  return OkStatus();
}

Status CheckSampling(const SamplingParams& sampling, const RequestLimits& limits) {
  if (Status s = CheckRange("sampling.temperature", sampling.temperature, 0.0F, 1000.0F); !s.ok()) return s;
  if (!(sampling.top_p > 0.0F && sampling.top_p <= 1.0F)) {
    return Unwanted("sampling.top_p", "above 0, up to 1", sampling.top_p);
  }
  if (sampling.top_k < 0) {
    return Unwanted("sampling.top_k", "at least 0 (0: off)", sampling.top_k);
  }
  if (Status s = CheckRange("sampling.min_p", sampling.min_p, 0.0F, 1.0F); !s.ok()) return s;
  if (Status s = CheckRange("sampling.repetition_penalty", sampling.repetition_penalty, 0.01F, 100.0F); !s.ok())
    return s;
  if (Status s = CheckRange("sampling.presence_penalty", sampling.presence_penalty, -2.0F, 2.0F); !s.ok()) return s;
  if (Status s = CheckRange("sampling.frequency_penalty", sampling.frequency_penalty, -2.0F, 2.0F); !s.ok()) return s;
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (Status s = CheckTokenId(id, limits, "sampling.logit_bias"); !s.ok()) return s;
    if (Status s = CheckRange("sampling.logit_bias", bias, -kBiasMax, kBiasMax); !s.ok()) return s;
  }
  return CheckIds(sampling.allowed_token_ids, limits, "sampling.allowed_token_ids");
}

bool IsStopToken(const StoppingParams& stopping, const TokenId id) {
  return std::find(stopping.stop_token_ids.begin(), stopping.stop_token_ids.end(), id) != stopping.stop_token_ids.end();
}

// min_tokens masks the stop ids: something must be left to sample.
Status CheckSomethingIsLeft(const Request& request, const RequestLimits& limits) {
  if (request.stopping.min_tokens == 0) return OkStatus();
  const auto& allowed = request.sampling.allowed_token_ids;
  const auto stops = [&](const TokenId id) { return IsStopToken(request.stopping, id); };
  bool left = false;
  if (!allowed.empty()) {
    left = !std::all_of(allowed.begin(), allowed.end(), stops);
  } else {
    for (int32_t id = 0; id < limits.usable_ids && !left; ++id) left = !stops(TokenId(id));
  }
  if (left) return OkStatus();
  return InvalidArgument("stopping.min_tokens: every allowed token is a stop token, which min_tokens forbids",
                         "stopping.min_tokens");
}

Status CheckStopping(const Request& request, const RequestLimits& limits) {
  const StoppingParams& stopping = request.stopping;
  if (stopping.max_tokens < 0) {
    return Unwanted("stopping.max_tokens", "at least 0", stopping.max_tokens);
  }
  if (stopping.min_tokens < 0 || stopping.min_tokens > stopping.max_tokens) {
    return Unwanted("stopping.min_tokens", "0 to max_tokens", stopping.min_tokens);
  }
  if (Status s = CheckIds(stopping.stop_token_ids, limits, "stopping.stop_token_ids"); !s.ok()) return s;
  if (static_cast<int64_t>(stopping.stop.size()) > limits.stop_strings_max) {
    return Unwanted("stopping.stop", fmt::format("at most {} strings", limits.stop_strings_max), stopping.stop.size());
  }
  for (const std::string& stop : stopping.stop) {
    if (stop.empty() || static_cast<int64_t>(stop.size()) > limits.stop_string_bytes_max) {
      return Unwanted("stopping.stop", fmt::format("strings of 1 to {} bytes", limits.stop_string_bytes_max),
                      stop.size());
    }
  }
  if (!stopping.stop.empty() && !limits.has_text) {
    return InvalidArgument("stopping.stop: strings need a tokenizer, which this model has not; use stop_token_ids",
                           "stopping.stop");
  }
  return CheckSomethingIsLeft(request, limits);
}

Status CheckLogprobs(const std::optional<int32_t>& wanted, const RequestLimits& limits, const char* const field) {
  return wanted.has_value() ? CheckRange<int64_t>(field, *wanted, 0, limits.logprobs_max) : OkStatus();
}

// Of requests.
constexpr ViewFields kPolicyFields = {.compressor = "kv_policy.compressor", .kv_budget = "kv_policy.kv_budget"};

Status CheckDraftedOn(const Request::Speculation& speculation, const RequestLimits& limits) {
  const auto& [drafter, draft_tokens, compressor, kv_budget, offers] = speculation;
  if (limits.compressing_drafters.contains(drafter)) {
    return CheckView(compressor, ViewUse::kDrafts, kv_budget, kPolicyFields);
  }
  if (compressor.empty() && !kv_budget.has_value()) return OkStatus();
  const std::string field = compressor.empty() ? "kv_policy.kv_budget" : "kv_policy.compressor";
  return InvalidArgument(
      field + ": the drafter " + drafter + " compresses nothing; leave it out, or name one that does", field);
}

Status CheckSpeculation(const Request::Speculation& speculation, const RequestLimits& limits) {
  if (speculation.drafter.empty()) return OkStatus();
  if (limits.drafters.empty()) {
    return InvalidArgument(
        "kv_policy.exactness: this engine does not speculate (engine.speculation.draft_tokens_max is 0); ask for EXACT",
        "kv_policy.exactness");
  }
  const bool is_offered = speculation.offers != nullptr && speculation.drafter == kOfferedDrafter;
  const auto named = std::find(limits.drafters.begin(), limits.drafters.end(), speculation.drafter);
  if (!is_offered && named == limits.drafters.end()) {
    const auto refused = limits.refused_drafters.find(speculation.drafter);
    const std::string why = refused == limits.refused_drafters.end() ? "" : fmt::format(" ({})", refused->second);
    return Unwanted("kv_policy.drafter", fmt::format("one of {}", fmt::join(limits.drafters, ", ")),
                    speculation.drafter + why);
  }
  if (Status s = CheckDraftedOn(speculation, limits); !s.ok()) return s;
  const std::optional<int32_t>& draft = speculation.draft_tokens;
  return draft.has_value() ? CheckRange("kv_policy.draft_tokens", *draft, 1, limits.draft_tokens_max) : OkStatus();
}

Status CheckApproximation(const Request& request, const RequestLimits& limits) {
  if (!request.approximation.has_value()) return OkStatus();
  const auto& [compressor, kv_budget] = *request.approximation;
  if (!limits.why_no_views.empty()) {
    return InvalidArgument(
        "kv_policy.exactness: APPROXIMATE is not possible here: " + limits.why_no_views + "; ask for EXACT or LOSSLESS",
        "kv_policy.exactness");
  }
  return CheckView(compressor, ViewUse::kAnswers, kv_budget, kPolicyFields);
}

Status CheckHints(const Request& request, const RequestLimits& limits) {
  for (const int32_t hint : request.cache.hints) {
    if (Status s = CheckRange("cache.checkpoint_hints", hint, 0, limits.max_sequence_tokens); !s.ok()) return s;
  }
  return OkStatus();
}

int64_t PoolTokens(const RequestLimits& limits) { return int64_t{limits.pages} * limits.page_tokens; }
// Of the rest an eighth is for degrees, which take at most that where a head has 8 dims or more; two pages are for the
// tail's growth and for roundings.
int64_t ApproximatePoolTokens(const RequestLimits& limits) {
  return std::max<int64_t>(0, int64_t{limits.pages} - 2) * limits.page_tokens * 8 / 9;
}

Status CheckLength(const Request& request, const RequestLimits& limits) {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + OutputLimit(request, limits);
  const int64_t room = request.approximation.has_value() ? ApproximatePoolTokens(limits) : PoolTokens(limits);
  if (tokens <= room) return OkStatus();
  return ResourceExhausted(fmt::format("stopping.max_tokens: prompt and output of up to {} tokens can never fit the KV "
                                       "budget of {}; lower it, shorten the prompt, or give the daemon a larger "
                                       "engine.kv_budget",
                                       tokens, room),
                           "stopping.max_tokens");
}

}  // namespace

int32_t MaxRequestTokens(const RequestLimits& limits) {
  return static_cast<int32_t>(std::min<int64_t>(limits.max_sequence_tokens, PoolTokens(limits)));
}

int32_t MaxApproximateTokens(const RequestLimits& limits) {
  return static_cast<int32_t>(std::min<int64_t>(limits.max_sequence_tokens, ApproximatePoolTokens(limits)));
}

Status CheckTokenId(const int32_t id, const RequestLimits& limits, const std::string_view field) {
  if (id >= 0 && id < limits.usable_ids) return OkStatus();
  return Unwanted(field, fmt::format("token ids from 0 to {}", limits.usable_ids - 1), id);
}

Status PromptTooLong(const std::string_view found, const RequestLimits& limits, const std::string_view field) {
  const bool model_is_the_limit = limits.max_sequence_tokens <= PoolTokens(limits);
  std::string message(field);
  message += ": the prompt is too long: ";
  message += model_is_the_limit ? "the model takes at most " : "the KV budget holds at most ";
  message += std::to_string(MaxRequestTokens(limits)) + " tokens, found ";
  message += found;
  message += "; shorten it";
  if (!model_is_the_limit) {
    message += ", or give the daemon a larger engine.kv_budget (the model takes " +
               std::to_string(limits.max_sequence_tokens) + ")";
  }
  return InvalidArgument(std::move(message), std::string(field)).WithReason(kPromptTooLong);
}

Status CheckPromptLength(const int64_t tokens, const RequestLimits& limits, const std::string_view field) {
  if (tokens == 0) return InvalidArgument(std::string(field) + ": the prompt has no tokens", std::string(field));
  if (tokens > MaxRequestTokens(limits)) return PromptTooLong(std::to_string(tokens), limits, field);
  return OkStatus();
}

int32_t OutputLimit(const Request& request, const RequestLimits& limits) {
  const int64_t room = limits.max_sequence_tokens - static_cast<int64_t>(request.prompt.size());
  return static_cast<int32_t>(std::clamp<int64_t>(request.stopping.max_tokens, 0, std::max<int64_t>(0, room)));
}

Status CheckCompressor(const std::string& compressor, const ViewUse use, const std::string_view field) {
  StatusOr<std::unique_ptr<cache::Compressor>> made = cache::MakeCompressor(compressor);
  if (!made.ok()) {
    return InvalidArgument(std::string(field) + ": " + std::string(made.status().message()), std::string(field));
  }
  const cache::CompressorTraits& traits = (*made)->traits();
  std::string missing;
  if (use == ViewUse::kDrafts && IsShownQueries(traits)) missing = "queries, which are not recorded for drafts";
  if (traits.second_pass) missing = "a second pass over the prompt, which is not made";
  if (missing.empty()) return OkStatus();
  return InvalidArgument(
      std::string(field) + ": " + compressor + " goes by " + missing + "; name another compressor, such as centroid",
      std::string(field));
}

Status CheckView(const std::string& compressor, const ViewUse use, const std::optional<float>& kv_budget,
                 const ViewFields& fields) {
  if (Status s = CheckCompressor(compressor, use, fields.compressor); !s.ok()) return s;
  const std::string field(fields.kv_budget);
  if (TakesBudget(compressor) == kv_budget.has_value()) {
    if (!kv_budget.has_value() || (*kv_budget > 0.0F && *kv_budget <= 1.0F)) return OkStatus();
    return Unwanted(field, "above 0, up to 1", *kv_budget);
  }
  const std::string why = kv_budget.has_value() ? " keeps every token; leave it out"
                                                : " wants to know the share of the full KV that it may keep";
  return InvalidArgument(field + ": " + compressor + why, field);
}

bool TakesBudget(const std::string& compressor) {
  const StatusOr<std::unique_ptr<cache::Compressor>> made = cache::MakeCompressor(compressor);
  return made.ok() && !(*made)->traits().keeps_all_tokens;
}

Status ValidateRequest(const Request& request, const RequestLimits& limits) {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (Status s = CheckPromptLength(prompt_tokens, limits, request.prompt_field); !s.ok()) return s;
  if (Status s = CheckIds(request.prompt, limits, request.prompt_field); !s.ok()) return s;
  if (Status s = CheckSampling(request.sampling, limits); !s.ok()) return s;
  if (Status s = CheckStopping(request, limits); !s.ok()) return s;
  if (Status s = CheckLogprobs(request.output.logprobs, limits, "output.logprobs"); !s.ok()) return s;
  if (Status s = CheckLogprobs(request.output.prompt_logprobs, limits, "output.prompt_logprobs"); !s.ok()) return s;
  if (Status s = CheckSpeculation(request.speculation, limits); !s.ok()) return s;
  if (Status s = CheckApproximation(request, limits); !s.ok()) return s;
  if (Status s = CheckHints(request, limits); !s.ok()) return s;
  return CheckLength(request, limits);
}

}  // namespace invar::engine
