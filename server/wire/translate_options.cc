// See translate_options.h.
#include "server/wire/translate_options.h"

#include <sys/random.h>

#include <algorithm>

#include "base/check.h"
#include "server/wire/translate_fields.h"

namespace invar::server {
namespace {

Status FillTokenLists(const v1::Sampling& proto, const TranslateContext& context, engine::SamplingParams& params) {
  if (Status s = CheckCount("sampling.logit_bias", proto.logit_bias().size(), context.limits.logit_bias_max); !s.ok()) {
    return s;
  }
  for (const auto& [id, bias] : proto.logit_bias()) params.logit_bias[id] = bias;
  const auto& allowed = proto.allowed_token_ids();
  if (Status s = CheckCount("sampling.allowed_token_ids", allowed.size(), context.limits.allowed_token_ids_max);
      !s.ok()) {
    return s;
  }
  params.allowed_token_ids = ToTokenIds(allowed);
  std::ranges::sort(params.allowed_token_ids);
  const auto repeats = std::ranges::unique(params.allowed_token_ids);
  params.allowed_token_ids.erase(repeats.begin(), repeats.end());
  return OkStatus();
}

}  // namespace

uint64_t RandomBits() {
  uint64_t bits = 0;
  Check(getrandom(&bits, sizeof(bits), 0) == sizeof(bits), "the system gives random bits");
  return bits;
}

Status FillSampling(const v1::Sampling& proto, const TranslateContext& context, engine::SamplingParams& params) {
  const models::GenerationDefaults& defaults = context.defaults;
  params.temperature = proto.has_temperature() ? proto.temperature() : defaults.do_sample ? defaults.temperature : 0.0F;
  params.top_p = proto.has_top_p() ? proto.top_p() : defaults.top_p;
  params.top_k = proto.has_top_k() ? proto.top_k() : defaults.top_k;
  params.min_p = proto.has_min_p() ? proto.min_p() : defaults.min_p;
  params.repetition_penalty = proto.has_repetition_penalty() ? proto.repetition_penalty() : defaults.repetition_penalty;
  params.presence_penalty = proto.presence_penalty();
  params.frequency_penalty = proto.frequency_penalty();
  if (params.top_k >= context.spec.vocabulary_size) params.top_k = 0;  // All of them: off.
  if (proto.has_n()) {
    if (Status s = CheckRange("sampling.n", proto.n(), 1, INT32_MAX); !s.ok()) return s;
    if (proto.n() != 1) return NotYet("sampling.n");
  }
  params.seed = proto.has_seed() ? static_cast<uint64_t>(proto.seed()) : RandomBits();
  return FillTokenLists(proto, context, params);
}

Status FillStopping(const v1::Stopping& proto, const int64_t output_max, const TranslateContext& context,
                    engine::StoppingParams& params) {
  if (proto.has_max_tokens()) {
    params.max_tokens = proto.max_tokens();
  } else {
    params.max_tokens = static_cast<int32_t>(std::max<int64_t>(0, output_max));
  }
  params.min_tokens = proto.min_tokens();
  if (Status s = CheckCount("stopping.stop", proto.stop_size(), context.limits.stop_strings_max); !s.ok()) return s;
  params.stop.assign(proto.stop().begin(), proto.stop().end());
  const auto& ids = proto.stop_token_ids();
  if (Status s = CheckCount("stopping.stop_token_ids", ids.size(), context.limits.stop_token_ids_max); !s.ok()) {
    return s;
  }
  params.stop_token_ids = ToTokenIds(ids);
  if (!proto.ignore_eos()) {
    const auto& eos = context.defaults.eos;
    params.stop_token_ids.insert(params.stop_token_ids.end(), eos.begin(), eos.end());
  }
  params.include_stop = proto.include_stop();
  return OkStatus();
}

Status FillOutput(const v1::GenerateRequest& request, const int64_t prompt_tokens, const int64_t output_tokens,
                  const TranslateContext& context, engine::OutputParams& params) {
  const v1::Output& proto = request.output();
  const int64_t max = context.limits.message_logprobs_max;
  int64_t entries = 0;
  if (proto.has_logprobs()) params.logprobs = std::min(proto.logprobs(), context.request_limits.usable_ids);
  if (!request.stream() && (proto.has_logprobs() || proto.logprob_bits())) {
    entries = output_tokens * (int64_t{1} + std::max(0, proto.logprobs()));
    if (entries > max) {
      return InvalidArgument(
          fmt::format("output.logprobs: without stream one message would hold {} entries, up to {} tokens with their "
                      "alternatives, of at most {}; stream, or lower stopping.max_tokens",
                      entries, output_tokens, max),
          "output.logprobs");
    }
  }
  if (proto.has_prompt_logprobs()) {
    entries += prompt_tokens * (int64_t{1} + proto.prompt_logprobs());
    if (Status s = CheckCount("output.prompt_logprobs", entries, max); !s.ok()) return s;
    params.prompt_logprobs = std::min(proto.prompt_logprobs(), context.request_limits.usable_ids);
  }
  params.logprob_bits = proto.logprob_bits();
  return OkStatus();
}

}  // namespace invar::server
