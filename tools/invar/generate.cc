// invar generate: one request to a daemon. Streams text to stdout, or prints one JSON object with everything the answer
// carries. Options whose feature a daemon lacks are sent all the same: its UNIMPLEMENTED says so.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/invar/client.h"
#include "tools/invar/command.h"
#include "tools/invar/parse.h"
#include "tools/invar/request_input.h"

namespace invar::tools {
namespace {

using nlohmann::ordered_json;

struct Options {
  ClientOptions client;
  AnswerOptions answer;
  RequestInput input;
  std::optional<int32_t> min_tokens, top_k, n, logprobs, prompt_logprobs, draft_tokens;
  std::optional<float> top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, kv_budget;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  std::string exactness, compressor, drafter, transfer, salt, model, request_id;
  bool bypass_cache = false, json = false, ignore_eos = false, include_stop = false;
  bool no_stream = false;
};

void AddOptions(CLI::App& app, Options& o) {
  AddClientOptions(app, o.client);
  AddInputOptions(app, o.input);
  app.add_option("--model", o.model, "Name of the model; empty: the served one");
  app.add_option("--request-id", o.request_id, "Id of the request in the answer and in debug logs");
  AddAnswerOptions(app, o.answer);
  app.add_option("--min-tokens", o.min_tokens, "No stop before so many tokens");
  app.add_option("--top-p", o.top_p, "Nucleus, (0, 1]; absent: the model's default, as for all that follow");
  app.add_option("--top-k", o.top_k, "0: off");
  app.add_option("--min-p", o.min_p, "[0, 1]");
  app.add_option("--repetition-penalty", o.repetition_penalty, "Over prompt and output");
  app.add_option("--presence-penalty", o.presence_penalty, "Over output");
  app.add_option("--frequency-penalty", o.frequency_penalty, "Over output");
  app.add_option("--n", o.n, "Outputs of one prompt");
  app.add_option("--stop", o.stop, "Stop string; may be repeated")->expected(1)->take_all();
  app.add_option("--stop-token-ids", o.stop_token_ids, "1,2,3")->delimiter(',');
  app.add_flag("--ignore-eos", o.ignore_eos, "Do not stop at the end-of-text token");
  app.add_flag("--include-stop", o.include_stop, "Keep the matched stop string");
  app.add_option("--logprobs", o.logprobs, "Alternatives beside each chosen token");
  app.add_option("--prompt-logprobs", o.prompt_logprobs, "The same for prompt tokens");
  app.add_option("--exactness", o.exactness, "How the answer relates to full KV")
      ->check(CLI::IsMember({"exact", "lossless", "approximate"}));
  app.add_option("--compressor", o.compressor,
                 "What KV is compressed with: a kind, or kind:settings; empty: the daemon's");
  app.add_option("--kv-budget", o.kv_budget, "Share of the full KV kept in the fast tier, (0, 1]");
  app.add_option("--draft-tokens", o.draft_tokens, "With lossless: draft so many tokens, whether it pays or not");
  app.add_option(
      "--drafter", o.drafter,
      "With lossless: who proposes tokens (compressed_kv; ngram; ngram+compressed_kv; mtp, where the model has the "
      "head); empty: the daemon's");
  app.add_option("--transfer", o.transfer, "KV from another instance")->check(CLI::IsMember({"none", "exact", "any"}));
  app.add_option("--salt", o.salt, "Separates cached prefixes");
  app.add_flag("--bypass-cache", o.bypass_cache, "Compute everything, store nothing");
  app.add_flag("--no-stream", o.no_stream, "Wait for the whole text");
  app.add_flag("--json", o.json, "One JSON object: token ids, logit bits, reuse, usage, timing");
}

void FillSampling(const Options& o, v1::Sampling& sampling) {
  if (o.top_p) sampling.set_top_p(*o.top_p);
  if (o.top_k) sampling.set_top_k(*o.top_k);
  if (o.min_p) sampling.set_min_p(*o.min_p);
  if (o.repetition_penalty) sampling.set_repetition_penalty(*o.repetition_penalty);
  if (o.presence_penalty) sampling.set_presence_penalty(*o.presence_penalty);
  if (o.frequency_penalty) sampling.set_frequency_penalty(*o.frequency_penalty);
  if (o.n) sampling.set_n(*o.n);
}

void FillStopping(const Options& o, v1::Stopping& stopping) {
  if (o.min_tokens) stopping.set_min_tokens(*o.min_tokens);
  for (const std::string& stop : o.stop) stopping.add_stop(stop);
  for (const int32_t id : o.stop_token_ids) stopping.add_stop_token_ids(id);
  stopping.set_ignore_eos(o.ignore_eos);
  stopping.set_include_stop(o.include_stop);
}

void FillPolicy(const Options& o, v1::GenerateRequest& request) {
  v1::KvPolicy& policy = *request.mutable_kv_policy();
  if (o.exactness == "exact") policy.set_exactness(v1::KvPolicy::EXACT);
  if (o.exactness == "lossless") policy.set_exactness(v1::KvPolicy::LOSSLESS);
  if (o.exactness == "approximate") policy.set_exactness(v1::KvPolicy::APPROXIMATE);
  policy.set_compressor(o.compressor);
  if (o.kv_budget) policy.set_kv_budget(*o.kv_budget);
  if (o.draft_tokens) policy.set_draft_tokens(*o.draft_tokens);
  policy.set_drafter(o.drafter);
  if (o.transfer == "none") policy.set_transfer(v1::KvPolicy::NO_TRANSFER);
  if (o.transfer == "exact") policy.set_transfer(v1::KvPolicy::EXACT_TRANSFER);
  if (o.transfer == "any") policy.set_transfer(v1::KvPolicy::ANY_TRANSFER);
  v1::CacheOptions& cache = *request.mutable_cache();
  cache.set_salt(o.salt);
  cache.set_bypass_read(o.bypass_cache);
  cache.set_bypass_write(o.bypass_cache);
}

void FillOutput(const Options& o, v1::Output& output) {
  if (o.logprobs) output.set_logprobs(*o.logprobs);
  if (o.prompt_logprobs) output.set_prompt_logprobs(*o.prompt_logprobs);
  output.set_token_ids(o.json);
  output.set_logprob_bits(o.json);
}

// What a stream adds up to.
struct Answer {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<v1::TokenLogprob> logprobs;
  v1::Started started;
  v1::Finished finished;
};

void Gather(const v1::GenerateResponse& response, Answer& answer) {
  const auto add = [&answer](const auto& part) {
    answer.text += part.text();
    answer.token_ids.insert(answer.token_ids.end(), part.token_ids().begin(), part.token_ids().end());
    answer.logprobs.insert(answer.logprobs.end(), part.logprobs().begin(), part.logprobs().end());
  };
  if (response.has_started()) answer.started = response.started();
  if (response.has_delta()) add(response.delta());
  if (response.has_finished()) {
    answer.finished = response.finished();
    add(response.finished());
  }
}

ordered_json LogprobsJson(const auto& logprobs) {
  ordered_json out = ordered_json::array();
  for (const v1::TokenLogprob& logprob : logprobs) {
    ordered_json entry = {{"token_id", logprob.token_id()}, {"logprob", logprob.logprob()}};
    for (const v1::Alternative& top : logprob.top()) {
      entry["top"].push_back({{"token_id", top.token_id()}, {"logprob", top.logprob()}});
    }
    out.push_back(std::move(entry));
  }
  return out;
}

const char* ReasonName(const v1::Finished::Reason reason) {
  switch (reason) {
    case v1::Finished::STOP:
      return "stop";
    case v1::Finished::LENGTH:
      return "length";
    case v1::Finished::ERROR:
      return "error";
    default:
      return "unspecified";
  }
}

std::string ToJson(const Answer& answer) {
  const v1::Finished& f = answer.finished;
  ordered_json out;
  out["request_id"] = answer.started.request_id();
  out["model"] = answer.started.model();
  out["text"] = answer.text;
  out["token_ids"] = answer.token_ids;
  out["logit_bits"] = ordered_json::array();
  out["logprob_bits"] = ordered_json::array();
  for (const v1::TokenLogprob& logprob : answer.logprobs) {
    out["logit_bits"].push_back(logprob.logit_bits());
    out["logprob_bits"].push_back(logprob.logprob_bits());
  }
  out["logprobs"] = LogprobsJson(answer.logprobs);
  if (f.prompt_logprobs_size() > 0) out["prompt_logprobs"] = LogprobsJson(f.prompt_logprobs());
  out["finish_reason"] = ReasonName(f.reason());
  if (f.has_stop()) out["stop"] = f.stop();
  if (f.has_stop_token_id()) out["stop_token_id"] = f.stop_token_id();
  out["seed"] = f.seed();
  out["usage"] = {{"prompt_tokens", f.usage().prompt_tokens()},
                  {"cached_tokens", f.usage().cached_tokens()},
                  {"completion_tokens", f.usage().completion_tokens()}};
  const v1::PrefixReuse& reuse = f.reuse();
  out["reuse"] = {
      {"kv_match_tokens", reuse.kv_match_tokens()},       {"state_match_tokens", reuse.state_match_tokens()},
      {"recomputed_tokens", reuse.recomputed_tokens()},   {"computed_tokens", reuse.computed_tokens()},
      {"transferred_tokens", reuse.transferred_tokens()}, {"tier", reuse.tier()}};
  out["speculation"] = {{"rounds", f.speculation().rounds()},
                        {"drafted_tokens", f.speculation().drafted_tokens()},
                        {"accepted_tokens", f.speculation().accepted_tokens()},
                        {"fallback_reason", f.speculation().fallback_reason()}};
  out["kv"] = {{"exact", f.kv().exact()},
               {"compressor", f.kv().compressor()},
               {"fast_tier_bytes", f.kv().fast_tier_bytes()},
               {"full_bytes", f.kv().full_bytes()},
               {"transfer_bytes", f.kv().transfer_bytes()},
               {"transfer_mode", f.kv().transfer_mode()},
               {"transfer_plan", f.kv().transfer_plan()},
               {"scd_profile", f.kv().scd_profile()},
               {"numerics_id", f.kv().numerics_id()}};
  out["timing"] = {{"queue_s", f.timing().queue_seconds()},
                   {"prefill_s", f.timing().prefill_seconds()},
                   {"first_token_s", f.timing().first_token_seconds()},
                   {"decode_s", f.timing().decode_seconds()}};
  return out.dump();
}

int Run(const Options& o) {
  v1::GenerateRequest request;
  if (Status s = FillInput(o.input, request); !s.ok()) {
    std::fprintf(stderr, "invar generate: %s\n", s.message().c_str());
    return kExitUsage;
  }
  request.set_model(o.model);
  request.set_request_id(o.request_id);
  FillAnswer(o.answer, request);
  FillSampling(o, *request.mutable_sampling());
  FillStopping(o, *request.mutable_stopping());
  FillOutput(o, *request.mutable_output());
  FillPolicy(o, request);
  request.set_stream(!o.no_stream);

  const auto stub = Connect(o.client);
  if (stub == nullptr) return kExitFailure;
  Answer answer;
  const grpc::Status status = Stream(*stub, o.client, request, [&](const v1::GenerateResponse& response) {
    Gather(response, answer);
    if (o.json) return true;
    std::fputs(TextOf(response).c_str(), stdout);
    return std::fflush(stdout) == 0;
  });
  if (!status.ok()) {
    if (!o.json && !answer.text.empty()) std::fputc('\n', stdout);
    PrintError("generate", status);
    return kExitFailure;
  }
  std::printf("%s\n", o.json ? ToJson(answer).c_str() : "");
  return answer.finished.reason() == v1::Finished::ERROR ? kExitFailure : kExitOk;
}

}  // namespace

int RunGenerate(const int argc, char** argv) {
  CLI::App app("Sends one request to a daemon and streams the answer", "invar generate");
  Options options;
  AddOptions(app, options);
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  return Run(options);
}

}  // namespace invar::tools
