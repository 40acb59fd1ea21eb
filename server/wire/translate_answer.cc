// See translate_answer.h.
#include "server/wire/translate_answer.h"

#include <bit>

#include "base/clock.h"

namespace invar::server {
namespace {

void FillReuse(const engine::PrefixReuse& reuse, v1::PrefixReuse& proto) {
  proto.set_kv_match_tokens(reuse.kv_match_tokens);
  proto.set_state_match_tokens(reuse.state_match_tokens);
  proto.set_recomputed_tokens(reuse.recomputed_tokens);
  proto.set_computed_tokens(reuse.computed_tokens);
  proto.set_transferred_tokens(reuse.transferred_tokens);
  proto.set_tier(reuse.tier);
}

}  // namespace

v1::GenerateResponse StartedMessage(const AnswerForm& form, const engine::StartedEvent& event) {
  v1::GenerateResponse response;
  v1::Started& started = *response.mutable_started();
  started.set_request_id(form.request_id);
  started.set_model(form.model);
  started.set_prompt_tokens(event.prompt_tokens);
  FillReuse(event.reuse, *started.mutable_reuse());
  return response;
}

v1::TokenLogprob LogprobMessage(const AnswerForm& form, const engine::TokenLogprob& logprob) {
  v1::TokenLogprob proto;
  proto.set_token_id(logprob.token.value());
  proto.set_logprob(logprob.logprob);
  for (const engine::TokenAlternative& alternative : logprob.top) {
    v1::Alternative& top = *proto.add_top();
    top.set_token_id(alternative.token.value());
    top.set_logprob(alternative.logprob);
  }
  if (form.logprob_bits) {
    proto.set_logit_bits(std::bit_cast<uint32_t>(logprob.logit));
    proto.set_logprob_bits(std::bit_cast<uint32_t>(logprob.logprob));
  }
  return proto;
}

void AppendDelta(const AnswerForm& form, const engine::DeltaEvent& event, v1::Delta& delta) {
  delta.mutable_text()->append(event.text);
  if (form.token_ids) {
    for (const TokenId token : event.tokens) delta.add_token_ids(token.value());
  }
  if (form.logprobs || form.logprob_bits) {
    for (const engine::TokenLogprob& logprob : event.logprobs) *delta.add_logprobs() = LogprobMessage(form, logprob);
  }
}

void FillFinished(const AnswerForm& form, const engine::FinishedEvent& event, v1::Finished& finished) {
  finished.set_reason(event.reason == engine::FinishReason::kStop ? v1::Finished::STOP : v1::Finished::LENGTH);
  if (const auto* stop = std::get_if<std::string>(&event.matched)) finished.set_stop(*stop);
  if (const auto* token = std::get_if<TokenId>(&event.matched)) finished.set_stop_token_id(token->value());
  finished.mutable_usage()->set_prompt_tokens(event.prompt_tokens);
  finished.mutable_usage()->set_cached_tokens(event.cached_tokens);
  finished.mutable_usage()->set_completion_tokens(event.completion_tokens);
  v1::SpeculationReport& speculation = *finished.mutable_speculation();
  if (event.speculation.has_value()) {
    speculation.set_rounds(event.speculation->rounds);
    speculation.set_drafted_tokens(event.speculation->drafted_tokens);
    speculation.set_accepted_tokens(event.speculation->accepted_tokens);
    speculation.set_fallback_reason(event.speculation->fallback_reason);
  }
  v1::KvReport& kv = *finished.mutable_kv();
  // An answer that ended before a view paid was computed on full KV.
  const bool on_view = event.view.has_value() && !event.view->compressor.empty();
  kv.set_exact(!on_view && event.reuse.made_of_codes.empty());
  kv.set_scd_profile(event.reuse.made_of_codes);
  if (on_view) kv.set_compressor(event.view->compressor);
  if (event.speculation.has_value()) kv.set_compressor(event.speculation->compressor);
  const int64_t slow_bytes = event.speculation.has_value() ? event.speculation->slow_tier_bytes : 0;
  kv.set_fast_tier_bytes(on_view ? event.view->bytes : event.kv_bytes - slow_bytes);
  if (event.speculation.has_value()) kv.set_slow_tier_bytes_read(event.speculation->slow_tier_bytes_read);
  kv.set_full_bytes(event.kv_bytes);
  kv.set_transfer_bytes(event.reuse.transfer_bytes);
  kv.set_transfer_mode(event.reuse.transfer_mode);
  kv.set_transfer_plan(event.reuse.transfer_plan);
  kv.set_numerics_id(form.numerics_id);
  v1::Timing& timing = *finished.mutable_timing();
  timing.set_queue_seconds(ToSeconds(event.queued_for));
  timing.set_prefill_seconds(ToSeconds(event.prefill_for));
  timing.set_decode_seconds(ToSeconds(event.decode_for));
  timing.set_first_token_seconds(ToSeconds(event.first_token_after));
  for (const engine::TokenLogprob& logprob : event.prompt_logprobs) {
    *finished.add_prompt_logprobs() = LogprobMessage(form, logprob);
  }
  FillReuse(event.reuse, *finished.mutable_reuse());
  finished.set_seed(form.seed);
  finished.set_kv_transfer_params_json(form.hand_off);
}

}  // namespace invar::server
