// Validation and translation. Field paths in errors are those of the proto ("sampling.top_p"), so that a client can map
// them back. Messages are for the caller alone: some name a character or a key of the text they are about.
#include "server/translate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "config/drafter_names.h"
#include "config/transfer.h"
#include "engine/validate.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace invar::server {
namespace {

constexpr std::string_view kDomain = "invar";
constexpr size_t kRequestIdBytesMax = 128;
constexpr size_t kRoleBytesMax = 64;
constexpr size_t kDrafterBytesMax = 64;
constexpr size_t kCompressorBytesMax = 256;

template <typename T>
Status CheckRange(const std::string_view field, const T value, const T min, const T max) {
  if (!(value >= min && value <= max)) {
    return InvalidArgument(fmt::format("{}: wants {} to {}, found {}", field, min, max, value), std::string(field));
  }
  return OkStatus();
}

Status CheckCount(const std::string_view field, const int64_t count, const int64_t max) {
  if (count > max) {
    return InvalidArgument(fmt::format("{}: at most {} entries, found {}", field, max, count), std::string(field));
  }
  return OkStatus();
}

Status CheckBytes(const std::string_view field, const size_t bytes, const int64_t max) {
  if (bytes > static_cast<size_t>(max)) {
    return InvalidArgument(fmt::format("{}: at most {} bytes, found {}", field, max, bytes), std::string(field));
  }
  return OkStatus();
}

// As CheckBytes, of what becomes the prompt.
Status CheckPromptBytes(const std::string_view field, const size_t bytes, const TranslateContext& context) {
  Status s = CheckBytes(field, bytes, context.limits.text_bytes_max);
  if (s.ok()) return s;
  return std::move(s).WithReason(engine::kPromptTooLong);
}

Status NotYet(const std::string& field) {
  return Unimplemented(fmt::format("{}: this build does not implement it; leave it out", field), field);
}

std::vector<TokenId> ToTokenIds(const google::protobuf::RepeatedField<int32_t>& ids) {
  std::vector<TokenId> out;
  out.reserve(ids.size());
  for (const int32_t id : ids) out.emplace_back(id);
  return out;
}

uint64_t RandomBits() {
  uint64_t bits = 0;
  Check(getrandom(&bits, sizeof(bits), 0) == sizeof(bits), "the system gives random bits");
  return bits;
}

Status CheckModel(const std::string& model, const TranslateContext& context) {
  if (!model.empty() && model != context.model_name) {
    return Status(StatusCode::kNotFound, fmt::format("model: this daemon serves '{}' only", context.model_name),
                  "model");
  }
  return OkStatus();
}

// --- chat ---

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
    return Status(inner.code(), fmt::format("chat.{}", inner.message()), "chat." + inner.field());
  }
  return pieces;
}

bool WantsGenerationPrompt(const v1::Chat& chat) {
  return !chat.has_add_generation_prompt() || chat.add_generation_prompt();
}

// --- input ---

struct Prompt {
  std::vector<TokenId> tokens;
  int32_t stable_tokens =
      0;  // Of a chat: those before the generation prompt; the next turn repeats them. 0: not known.
};

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

Status CheckRequestId(const std::string& id) {
  if (Status s = CheckBytes("request_id", id.size(), kRequestIdBytesMax); !s.ok()) return s;
  const bool printable = std::ranges::all_of(id, [](const unsigned char c) { return c >= 0x20 && c < 0x7f; });
  if (!printable) return InvalidArgument("request_id: wants printable ASCII", "request_id");
  return OkStatus();
}

// --- options ---

// The numbers of `params` are the model's defaults where the request gives none.
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
  return OkStatus();
}

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

// `output_max`: of a request that says nothing.
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

// The last message holds the log-probabilities of the prompt and, where nothing is streamed, those of the whole output.
// Judged by what may come, before anything is computed.
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

const std::string& DrafterOf(const v1::KvPolicy& policy, const TranslateContext& context) {
  return policy.drafter().empty() ? context.speculation.drafter : policy.drafter();
}

// Where the request is silent and its compressor must be told, `usual`.
std::optional<float> BudgetOf(const v1::KvPolicy& policy, const std::string& compressor, const double usual) {
  if (policy.has_kv_budget()) return policy.kv_budget();
  if (engine::TakesBudget(compressor)) return static_cast<float>(usual);
  return std::nullopt;
}

engine::Request::Speculation SpeculationOf(const v1::KvPolicy& policy, const TranslateContext& context) {
  engine::Request::Speculation speculation;
  speculation.drafter = DrafterOf(policy, context);
  if (policy.has_draft_tokens()) speculation.draft_tokens = policy.draft_tokens();
  const bool compresses = context.request_limits.compressing_drafters.contains(speculation.drafter);
  speculation.compressor =
      compresses && policy.compressor().empty() ? context.speculation.compressor : policy.compressor();
  speculation.kv_budget = BudgetOf(policy, speculation.compressor, context.speculation.kv_budget);
  return speculation;
}

// Names of the API that this build lacks; others are the engine's to judge.
Status CheckDrafter(const v1::KvPolicy& policy, const TranslateContext& context) {
  if (Status s = CheckBytes("kv_policy.drafter", policy.drafter().size(), kDrafterBytesMax); !s.ok()) return s;
  const std::string& drafter = DrafterOf(policy, context);
  const auto& here = context.drafters;
  const bool known = std::find(kDrafterNames.begin(), kDrafterNames.end(), drafter) != kDrafterNames.end();
  if (here.empty() || !known || std::find(here.begin(), here.end(), drafter) != here.end()) return OkStatus();
  if (context.request_limits.refused_drafters.contains(drafter)) return OkStatus();
  return Unimplemented(
      fmt::format("kv_policy.drafter: this build does not have '{}'{}; name one of: {}", drafter,
                  policy.drafter().empty() ? ", the drafter of LOSSLESS here (engine.speculation.drafter)" : "",
                  fmt::join(here, ", ")),
      "kv_policy.drafter");
}

Status CheckKvPolicy(const v1::KvPolicy& policy, const TranslateContext& context) {
  if (!v1::KvPolicy::Exactness_IsValid(policy.exactness())) {
    return InvalidArgument(fmt::format("kv_policy.exactness: unknown value {}", static_cast<int>(policy.exactness())),
                           "kv_policy.exactness");
  }
  if (!v1::KvPolicy::Transfer_IsValid(policy.transfer())) {
    return InvalidArgument(fmt::format("kv_policy.transfer: unknown value {}", static_cast<int>(policy.transfer())),
                           "kv_policy.transfer");
  }
  if (Status s = CheckBytes("kv_policy.compressor", policy.compressor().size(), kCompressorBytesMax); !s.ok()) return s;
  if (policy.exactness() == v1::KvPolicy::LOSSLESS) {
    if (Status s = CheckDrafter(policy, context); !s.ok()) return s;
  } else if (policy.has_draft_tokens() || !policy.drafter().empty()) {
    const char* const field = policy.has_draft_tokens() ? "kv_policy.draft_tokens" : "kv_policy.drafter";
    return InvalidArgument(
        fmt::format("{}: only LOSSLESS requests speculate; set kv_policy.exactness to LOSSLESS or leave it out", field),
        field);
  }
  const bool compresses =
      policy.exactness() == v1::KvPolicy::LOSSLESS || policy.exactness() == v1::KvPolicy::APPROXIMATE;
  if (!compresses && (policy.has_kv_budget() || !policy.compressor().empty())) {
    const char* const field = policy.has_kv_budget() ? "kv_policy.kv_budget" : "kv_policy.compressor";
    return InvalidArgument(fmt::format("{}: exact answers use full KV; set kv_policy.exactness to LOSSLESS or "
                                       "APPROXIMATE, or leave it out",
                                       field),
                           field);
  }
  if (policy.transfer() == v1::KvPolicy::ANY_TRANSFER) return NotYet("kv_policy.transfer");
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

// What the request leaves open is the deployment's.
engine::Request::Approximation ApproximationOf(const v1::KvPolicy& policy, const TranslateContext& context) {
  const std::string& compressor = policy.compressor().empty() ? context.approximate.compressor : policy.compressor();
  return {.compressor = compressor, .kv_budget = BudgetOf(policy, compressor, context.approximate.kv_budget)};
}

// Where this instance fetches nothing, what is allowed does not happen. A hand-off allows it where the request is
// silent.
Status FillTransfer(const v1::GenerateRequest& proto, const TranslateContext& context, engine::Request& request) {
  const v1::KvPolicy::Transfer wanted = proto.kv_policy().transfer();
  const std::string& hand_off = proto.kv_transfer_params_json();
  const bool by_default =
      wanted == v1::KvPolicy::TRANSFER_UNSPECIFIED && (context.transfer.mode == "exact" || !hand_off.empty());
  request.transfer.allowed = by_default || wanted == v1::KvPolicy::EXACT_TRANSFER;
  if (hand_off.empty() || !config::FetchesPrefixes(context.transfer)) {
    return CheckBytes("kv_transfer_params_json", hand_off.size(), HandOffs::kJsonBytesMax);
  }
  if (context.hand_offs == nullptr) {
    return InvalidArgument("kv_transfer_params_json: hand-offs are understood where transfer.hmac_secret_file is given",
                           "kv_transfer_params_json");
  }
  StatusOr<std::string> producer = context.hand_offs->ProducerOf(hand_off, request.prompt, UnixMs());
  if (!producer.ok()) return producer.status();
  request.transfer.producer = *std::move(producer);
  return OkStatus();
}

std::string DrawRequestId() { return fmt::format("{:016x}{:016x}", RandomBits(), RandomBits()); }

void FillReuse(const engine::PrefixReuse& reuse, v1::PrefixReuse& proto) {
  proto.set_kv_match_tokens(reuse.kv_match_tokens);
  proto.set_state_match_tokens(reuse.state_match_tokens);
  proto.set_recomputed_tokens(reuse.recomputed_tokens);
  proto.set_computed_tokens(reuse.computed_tokens);
  proto.set_transferred_tokens(reuse.transferred_tokens);
  proto.set_tier(reuse.tier);
}

// One word a program may compare. The message holds the rest.
std::string_view ReasonOf(const Status& status) {
  if (!status.reason().empty()) return status.reason();
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return "INVALID_FIELD";
    case StatusCode::kUnimplemented:
      return "NOT_IMPLEMENTED";
    case StatusCode::kNotFound:
      return "MODEL_NOT_FOUND";
    case StatusCode::kResourceExhausted:
      return "LIMIT_REACHED";
    case StatusCode::kUnavailable:
      return "NOT_SERVING";
    case StatusCode::kUnauthenticated:
      return "TOKEN_REQUIRED";
    case StatusCode::kPermissionDenied:
      return "ADMIN_TOKEN_REQUIRED";
    default:
      return {};
  }
}

}  // namespace

StatusOr<TranslatedRequest> TranslateGenerate(const v1::GenerateRequest& proto, const std::string& tenant,
                                              const TranslateContext& context) {
  if (Status s = CheckOptions(proto, context); !s.ok()) return s;
  TranslatedRequest out;
  engine::Request& request = out.request;
  if (Status s = FillSampling(proto.sampling(), context, request.sampling); !s.ok()) return s;
  if (Status s = FillTokenLists(proto.sampling(), context, request.sampling); !s.ok()) return s;
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

StatusOr<std::vector<TokenId>> TranslateTokenize(const v1::TokenizeRequest& proto, const TranslateContext& context) {
  if (Status s = CheckModel(proto.model(), context); !s.ok()) return s;
  if (Status s = CheckBytes("text", proto.text().size(), context.limits.text_bytes_max); !s.ok()) return s;
  return context.tokenizer.Encode(
      proto.text(), proto.parse_special() ? models::ControlTokens::kParse : models::ControlTokens::kStayText,
      proto.add_special(), {.interrupted = context.interrupted});
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
  // The request's own switch is a plain bool: either place asks for the prompt, and chat's false wins over neither.
  const bool prompt =
      proto.chat().has_add_generation_prompt() ? proto.chat().add_generation_prompt() : proto.add_generation_prompt();
  const StatusOr<std::vector<models::PromptPiece>> pieces = RenderChat(proto.chat(), prompt, context);
  if (!pieces.ok()) return pieces.status();
  const StatusOr<std::vector<TokenId>> ids =
      context.tokenizer.EncodePieces(*pieces, {.interrupted = context.interrupted});
  if (!ids.ok()) return ids.status();
  v1::RenderChatResponse response;
  for (const models::PromptPiece& piece : *pieces) response.mutable_text()->append(piece.text);
  for (const TokenId id : *ids) response.add_ids(id.value());
  return response;
}

v1::ModelInfo TranslateModelInfo(const std::string& name, const models::ModelSpec& spec) {
  v1::ModelInfo info;
  info.set_id(name);
  info.set_architecture(spec.architecture);
  info.set_fingerprint(spec.fingerprint);
  info.set_max_sequence_tokens(spec.max_sequence_tokens);
  info.set_vocabulary_size(spec.vocabulary_size);
  info.set_attention_layers(spec.attention_layers);
  info.set_recurrent_layers(spec.recurrent_layers);
  info.set_kv_bytes_per_token(spec.page_bytes / kernels::kPageTokens);
  info.set_checkpoint_bytes(spec.state_bytes);
  info.set_numerics_id(spec.numerics_id);
  return info;
}

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
  kv.set_exact(!on_view);
  if (on_view) kv.set_compressor(event.view->compressor);
  if (event.speculation.has_value()) kv.set_compressor(event.speculation->compressor);
  const int64_t slow_bytes = event.speculation.has_value() ? event.speculation->slow_tier_bytes : 0;
  kv.set_fast_tier_bytes(on_view ? event.view->bytes : event.kv_bytes - slow_bytes);
  if (event.speculation.has_value()) kv.set_slow_tier_bytes_read(event.speculation->slow_tier_bytes_read);
  kv.set_full_bytes(event.kv_bytes);
  kv.set_transfer_bytes(event.reuse.transfer_bytes);
  if (event.reuse.transferred_tokens > 0) kv.set_transfer_mode("raw");
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

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(status.message());
  if (!status.field().empty()) {
    google::rpc::BadRequest bad_request;
    auto& violation = *bad_request.add_field_violations();
    violation.set_field(status.field());
    violation.set_description(status.message());
    details.add_details()->PackFrom(bad_request);
  }
  if (const std::string_view reason = ReasonOf(status); !reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(std::string(reason));
    info.set_domain(std::string(kDomain));
    details.add_details()->PackFrom(info);
  }
  const bool retry = status.code() == StatusCode::kUnavailable ||
                     (status.code() == StatusCode::kResourceExhausted && status.field().empty());
  if (retry) {
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_seconds(1);
    details.add_details()->PackFrom(info);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message(), details.SerializeAsString());
}

}  // namespace invar::server
