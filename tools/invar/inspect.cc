// invar inspect: what is in a folder or a file, in words. A model: the plan the loader would follow, and whether the
// weights fit it. A disk tier: inspect_tier.cc. A profile of a pair of models: inspect_scd.cc.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "models/model.h"
#include "models/stack/mtp_head.h"
#include "models/stack/stack_plan.h"
#include "models/text.h"
#include "models/weights/weight_files.h"
#include "tools/invar/command.h"
#include "tools/invar/inspect_scd.h"
#include "tools/invar/inspect_tier.h"
#include "tools/invar/parse.h"

namespace invar::tools {
namespace {

struct Weights {
  int64_t parameters = 0;
  int64_t bytes = 0;
  size_t files = 0;
  std::map<std::string, int64_t> tensors_by_dtype;
  std::string why_no_mtp_head;  // Empty: there is one, and it is served.
};

StatusOr<Weights> ReadWeights(const std::string& folder, const models::StackPlan& plan) {
  StatusOr<models::WeightFiles> opened = models::WeightFiles::Open(folder);
  if (!opened.ok()) return opened.status();
  Weights weights{
      .files = opened->files().size(), .tensors_by_dtype = {}, .why_no_mtp_head = models::WhyNoMtpHead(plan, *opened)};
  for (const models::SafetensorsFile& file : opened->files()) {
    for (const auto& [name, info] : file.tensors()) {
      int64_t elements = 1;
      for (const int64_t dim : info.shape) elements *= dim;
      weights.parameters += elements;
      weights.bytes += info.bytes;
      ++weights.tensors_by_dtype[info.dtype_name];
    }
  }
  return weights;
}

nlohmann::ordered_json Describe(const models::StackPlan& plan, const Weights& weights,
                                const models::GenerationDefaults& defaults) {
  int64_t full = 0;
  int64_t recurrent = 0;
  int64_t experts = 0;
  int64_t state_bytes = 0;
  for (const models::LayerPlan& layer : plan.layers) {
    full += layer.mixer->kind() == "full_attention" ? 1 : 0;
    experts += layer.mlp->kind() == "experts" ? 1 : 0;
    if (const std::optional<models::RecurrentLayerState> state = layer.mixer->State(); state.has_value()) {
      ++recurrent;
      state_bytes +=
          4 * (int64_t{state->heads_v} * state->dim_k * state->dim_v + int64_t{state->conv_rows} * state->conv_dim);
    }
  }
  const bool guesses = weights.why_no_mtp_head.empty();
  if (guesses) state_bytes += int64_t{4} * plan.hidden;
  const int64_t kv_bytes = (full + (guesses ? 1 : 0)) * 2 * plan.attention.kv_heads * plan.attention.head_dim * 2;
  nlohmann::ordered_json json = {{"architecture", plan.architecture},
                                 {"parameters", weights.parameters},
                                 {"weight_bytes", weights.bytes},
                                 {"weight_files", weights.files},
                                 {"tensors", weights.tensors_by_dtype},
                                 {"layers", plan.layers.size()},
                                 {"full_attention_layers", full},
                                 {"recurrent_layers", recurrent},
                                 {"expert_layers", experts},
                                 {"hidden", plan.hidden},
                                 {"vocabulary", plan.vocabulary_size},
                                 {"tied_embeddings", plan.tied_embeddings},
                                 {"heads", plan.attention.heads},
                                 {"kv_heads", plan.attention.kv_heads},
                                 {"head_dim", plan.attention.head_dim},
                                 {"rope", plan.attention.rope.type},
                                 {"rotary_dims", plan.attention.rope.inverse_frequencies.size() * 2},
                                 {"max_tokens", plan.attention.rope.max_positions},
                                 {"state_bytes_per_sequence", state_bytes},
                                 {"kv_bytes_per_token_bf16", kv_bytes},
                                 {"multi_token_head", guesses}};
  if (!guesses) json["why_no_multi_token_head"] = weights.why_no_mtp_head;
  std::vector<int32_t> eos;
  for (const TokenId id : defaults.eos) eos.push_back(id.value());
  json["stop_token_ids"] = eos;
  return json;
}

void PrintWords(const std::string& folder, const models::StackPlan& plan, const nlohmann::ordered_json& json) {
  const auto number = [&json](const char* key) { return json[key].get<int64_t>(); };
  fmt::print("{}: {} with {:.1f} million parameters in {} file(s), {:.1f} MB\n", folder, plan.architecture,
             static_cast<double>(number("parameters")) / 1e6, number("weight_files"),
             static_cast<double>(number("weight_bytes")) / 1e6);
  fmt::print("layers: {} ({} full attention, {} recurrent; {} with experts)\n", number("layers"),
             number("full_attention_layers"), number("recurrent_layers"), number("expert_layers"));
  fmt::print("hidden {}, vocabulary {}{}, up to {} tokens\n", plan.hidden, plan.vocabulary_size,
             plan.tied_embeddings ? " (head tied to the embedding)" : "", number("max_tokens"));
  std::set<std::string_view> described;
  for (const models::LayerPlan& layer : plan.layers) {
    if (described.insert(layer.mixer->kind()).second) fmt::print("{}\n", layer.mixer->Describe(plan));
    if (described.insert(layer.mlp->kind()).second) fmt::print("{}\n", layer.mlp->Describe());
  }
  fmt::print("multi-token head: {}\n", json["multi_token_head"].get<bool>()
                                           ? "one layer, served (engine.speculation.mtp_head)"
                                           : "none, since " + json["why_no_multi_token_head"].get<std::string>());
  fmt::print("a sequence takes {} bytes of state and {} bytes of KV a token (bf16)\n",
             number("state_bytes_per_sequence"), number("kv_bytes_per_token_bf16"));
  fmt::print("stop tokens: {}\n", json["stop_token_ids"].dump());
}

}  // namespace

int RunInspect(int argc, char** argv) {
  std::string folder;
  bool as_json = false;
  bool check_payloads = false;
  CLI::App app("Say in words what is in the folder of a model or of a disk tier, or in a profile of a pair.",
               "invar inspect");
  app.add_option("path", folder, "model folder, cache.tiers.disk.path, or FILE.scd")->required();
  app.add_flag("--check", check_payloads, "disk tier: read every payload against its checksums");
  app.add_flag("--json", as_json, "one JSON object");
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  const auto fail = [](const Status& status) { return ExitOf("inspect", status); };
  if (std::filesystem::is_regular_file(folder)) {
    if (std::filesystem::path(folder).extension() == ".scd") return InspectScdFile(folder, as_json);
    return fail(InvalidArgument(folder + ": wanted the folder of a model or of a disk tier, or FILE.scd", "path"));
  }
  if (IsTierFolder(folder)) return InspectTierFolder(folder, check_payloads, as_json);
  std::string text;
  const StatusOr<models::StackPlan> plan = models::ReadStackPlan(folder, text);
  if (!plan.ok()) return fail(plan.status());
  const StatusOr<Weights> weights = ReadWeights(folder, *plan);
  if (!weights.ok()) return fail(weights.status());
  // A folder of weights alone is worth a look too.
  const StatusOr<std::unique_ptr<models::Tokenizer>> tokenizer = models::LoadTokenizer(folder);
  if (!tokenizer.ok() && tokenizer.status().code() != StatusCode::kNotFound) return fail(tokenizer.status());
  const StatusOr<models::GenerationDefaults> defaults =
      models::LoadGenerationDefaults(folder, tokenizer.ok() ? tokenizer->get() : nullptr);
  if (!defaults.ok()) return fail(defaults.status());
  const nlohmann::ordered_json json = Describe(*plan, *weights, *defaults);
  if (as_json) {
    std::printf("%s\n", json.dump().c_str());
  } else {
    PrintWords(folder, *plan, json);
  }
  return kExitOk;
}

}  // namespace invar::tools
