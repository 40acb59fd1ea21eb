// See translate_kv_policy.h.
#include "server/wire/translate_kv_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "config/drafter_names.h"
#include "config/transfer.h"
#include "engine/validate.h"
#include "server/wire/translate_fields.h"

namespace invar::server {
namespace {

constexpr size_t kDrafterBytesMax = 64;
constexpr size_t kCompressorBytesMax = 256;

const std::string& DrafterOf(const v1::KvPolicy& policy, const TranslateContext& context) {
  return policy.drafter().empty() ? context.speculation.drafter : policy.drafter();
}

// Where the request is silent and its compressor must be told, `usual`.
std::optional<float> BudgetOf(const v1::KvPolicy& policy, const std::string& compressor, const double usual) {
  if (policy.has_kv_budget()) return policy.kv_budget();
  if (engine::TakesBudget(compressor)) return static_cast<float>(usual);
  return std::nullopt;
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

}  // namespace

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
  return OkStatus();
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

engine::Request::Approximation ApproximationOf(const v1::KvPolicy& policy, const TranslateContext& context) {
  const std::string& compressor = policy.compressor().empty() ? context.approximate.compressor : policy.compressor();
  return {.compressor = compressor, .kv_budget = BudgetOf(policy, compressor, context.approximate.kv_budget)};
}

Status FillTransfer(const v1::GenerateRequest& proto, const TranslateContext& context, engine::Request& request) {
  const v1::KvPolicy::Transfer wanted = proto.kv_policy().transfer();
  const std::string& hand_off = proto.kv_transfer_params_json();
  const bool by_default =
      wanted == v1::KvPolicy::TRANSFER_UNSPECIFIED && (context.transfer.mode != "none" || !hand_off.empty());
  request.transfer.allowed =
      by_default || wanted == v1::KvPolicy::EXACT_TRANSFER || wanted == v1::KvPolicy::ANY_TRANSFER;
  const v1::KvPolicy::Exactness exactness = proto.kv_policy().exactness();
  request.transfer.coded = exactness != v1::KvPolicy::EXACT && exactness != v1::KvPolicy::LOSSLESS &&
                           (wanted == v1::KvPolicy::ANY_TRANSFER || (by_default && context.transfer.mode == "any"));
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

}  // namespace invar::server
