// See translate.h. The order: what costs nothing is refused first, then the prompt is made.
#include "server/wire/translate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "server/wire/translate_fields.h"
#include "server/wire/translate_kv_policy.h"
#include "server/wire/translate_options.h"
#include "server/wire/translate_prompt.h"

namespace invar::server {
namespace {

constexpr size_t kRequestIdBytesMax = 128;

Status CheckRequestId(const std::string& id) {
  if (Status s = CheckBytes("request_id", id.size(), kRequestIdBytesMax); !s.ok()) return s;
  const bool printable = std::ranges::all_of(id, [](const unsigned char c) { return c >= 0x20 && c < 0x7f; });
  if (!printable) return InvalidArgument("request_id: wants printable ASCII", "request_id");
  return OkStatus();
}

Status CheckConstraint(const v1::Constraint& constraint) {
  switch (constraint.kind_case()) {
    case v1::Constraint::kJsonSchema:
      return NotYet("constraint.json_schema");
    case v1::Constraint::kRegex:
      return NotYet("constraint.regex");
    case v1::Constraint::kGrammar:
      return NotYet("constraint.grammar");
    case v1::Constraint::kJsonObject:
      return NotYet("constraint.json_object");
    case v1::Constraint::kChoice:
      return NotYet("constraint.choice");
    case v1::Constraint::KIND_NOT_SET:
      break;
  }
  return OkStatus();
}

Status CheckCache(const v1::CacheOptions& cache, const TranslateContext& context) {
  if (Status s = CheckBytes("cache.salt", cache.salt().size(), context.limits.salt_bytes_max); !s.ok()) return s;
  if (Status s =
          CheckCount("cache.checkpoint_hints", cache.checkpoint_hints_size(), context.limits.checkpoint_hints_max);
      !s.ok()) {
    return s;
  }
  return OkStatus();
}

// All that can be refused without looking at the prompt: cheap, so first.
Status CheckOptions(const v1::GenerateRequest& proto, const TranslateContext& context) {
  if (Status s = CheckRequestId(proto.request_id()); !s.ok()) return s;
  if (Status s = CheckModel(proto.model(), context); !s.ok()) return s;
  if (Status s = CheckConstraint(proto.constraint()); !s.ok()) return s;
  if (Status s = CheckKvPolicy(proto.kv_policy(), context); !s.ok()) return s;
  if (Status s = CheckCache(proto.cache(), context); !s.ok()) return s;
  const auto priority_max = static_cast<int32_t>(context.limits.priority_max);
  return CheckRange("scheduling.priority", proto.scheduling().priority(), -priority_max, priority_max);
}

std::string DrawRequestId() { return fmt::format("{:016x}{:016x}", RandomBits(), RandomBits()); }

}  // namespace

StatusOr<TranslatedRequest> TranslateGenerate(const v1::GenerateRequest& proto, const std::string& tenant,
                                              const TranslateContext& context) {
  if (Status s = CheckOptions(proto, context); !s.ok()) return s;
  TranslatedRequest out;
  engine::Request& request = out.request;
  if (Status s = FillSampling(proto.sampling(), context, request.sampling); !s.ok()) return s;
  StatusOr<Prompt> prompt = PromptOf(proto, context);
  if (!prompt.ok()) return prompt.status();
  request.prompt = std::move(prompt->tokens);
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  request.prompt_field = InputField(proto);
  if (Status s = engine::CheckPromptLength(prompt_tokens, context.request_limits, request.prompt_field); !s.ok()) {
    return s;
  }
  const bool approximate = proto.kv_policy().exactness() == v1::KvPolicy::APPROXIMATE;
  const int64_t output_max = (approximate ? engine::MaxApproximateTokens(context.request_limits)
                                          : engine::MaxRequestTokens(context.request_limits)) -
                             prompt_tokens;
  if (Status s = FillStopping(proto.stopping(), output_max, context, request.stopping); !s.ok()) return s;
  const int64_t output_tokens = std::clamp<int64_t>(request.stopping.max_tokens, 0, std::max<int64_t>(0, output_max));
  if (Status s = FillOutput(proto, prompt_tokens, output_tokens, context, request.output); !s.ok()) return s;
  request.request_id = proto.request_id().empty() ? DrawRequestId() : proto.request_id();
  request.tenant = tenant;
  request.priority = proto.scheduling().priority();
  request.cache = {.salt = proto.cache().salt(),
                   .bypass_read = proto.cache().bypass_read(),
                   .bypass_write = proto.cache().bypass_write(),
                   .hints = {proto.cache().checkpoint_hints().begin(), proto.cache().checkpoint_hints().end()},
                   .stable_tokens = prompt->stable_tokens};
  if (Status s = FillTransfer(proto, context, request); !s.ok()) return s;
  if (const v1::KvPolicy& policy = proto.kv_policy(); policy.exactness() == v1::KvPolicy::LOSSLESS) {
    request.speculation = SpeculationOf(policy, context);
  } else if (policy.exactness() == v1::KvPolicy::APPROXIMATE) {
    request.approximation = ApproximationOf(policy, context);
  }

  out.form = {.request_id = request.request_id,
              .model = context.model_name,
              .numerics_id = context.spec.numerics_id,
              .stream = proto.stream(),
              .token_ids = proto.output().token_ids(),
              .logprobs = proto.output().has_logprobs(),
              .logprob_bits = proto.output().logprob_bits(),
              .seed = static_cast<int64_t>(request.sampling.seed)};
  if (context.hand_offs != nullptr) out.form.hand_off = context.hand_offs->Issue(request.prompt, UnixMs());
  return out;
}

v1::ModelInfo TranslateModelInfo(const std::string& name, const models::ModelSpec& spec,
                                 const engine::RequestLimits& limits) {
  v1::ModelInfo info;
  info.set_id(name);
  info.set_architecture(spec.architecture);
  info.set_fingerprint(spec.fingerprint);
  info.set_max_sequence_tokens(engine::MaxRequestTokens(limits));
  info.set_vocabulary_size(spec.vocabulary_size);
  info.set_attention_layers(spec.attention_layers);
  info.set_recurrent_layers(spec.recurrent_layers);
  info.set_kv_bytes_per_token(spec.page_bytes / kernels::kPageTokens);
  info.set_checkpoint_bytes(spec.state_bytes);
  info.set_numerics_id(spec.numerics_id);
  info.set_token_ids(limits.usable_ids);
  return info;
}

}  // namespace invar::server
