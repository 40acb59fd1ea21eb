// Binds configuration to loaders and engine: where fields of model, engine and limits become options of the layers
// below.
#include "server/calls/served_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/cores.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "config/transfer.h"
#include "engine/validate.h"

namespace invar::server {
namespace {

// Packing a large model takes minutes: a line every tenth.
std::function<void(int64_t, int64_t)> LogPacking() {
  return [next = int64_t{10}](const int64_t done, const int64_t total) mutable {
    const int64_t percent = total > 0 ? static_cast<int64_t>(100.0 * static_cast<double>(done) / total) : 100;
    if (percent < next) return;
    Logger("server")->info("packing weights: {} % of {} bytes", percent, total);
    next = percent / 10 * 10 + 10;
  };
}

// Requests inherit these numbers: what would be refused in each of them is refused once, here, where it can be mended.
Status CheckDefaults(const std::string& folder, const models::GenerationDefaults& defaults, const int32_t usable_ids) {
  const engine::RequestLimits limits{.usable_ids = usable_ids,
                                     .max_sequence_tokens = INT32_MAX,
                                     .page_tokens = kernels::kPageTokens,
                                     .pages = INT32_MAX};
  engine::Request request;
  request.prompt = {TokenId(0)};
  request.sampling.temperature = defaults.temperature;
  request.sampling.top_p = defaults.top_p;
  request.sampling.top_k = defaults.top_k;
  request.sampling.min_p = defaults.min_p;
  request.sampling.repetition_penalty = defaults.repetition_penalty;
  if (Status s = engine::ValidateRequest(request, limits); !s.ok()) {
    return InvalidArgument(fmt::format("{}/generation_config.json: {}", folder, s.message()), s.field());
  }
  request.stopping.stop_token_ids = defaults.eos;
  if (Status s = engine::ValidateRequest(request, limits); !s.ok()) {
    return InvalidArgument(fmt::format("{}: eos_token_id of generation_config.json or config.json, or eos_token of "
                                       "tokenizer_config.json: {}",
                                       folder, s.message()),
                           "eos_token_id");
  }
  return OkStatus();
}

// One row a running request; at least 64, so that prompt_logprobs get on.
int32_t LogitsRows(const config::Config::Engine& options) {
  // A draft's rows and that of the known token all have logits.
  return static_cast<int32_t>(std::max<int64_t>({options.running_max, options.speculation.draft_tokens_max + 1, 64}));
}

int64_t DraftMemory(const config::Config::Engine& options) {
  constexpr int64_t kShare = 8;
  return options.speculation.draft_memory > 0 ? options.speculation.draft_memory : options.kv_budget / kShare;
}

// Above any there is; one that is larger has no digest.
constexpr int64_t kTokenizerBytesMax = int64_t{256} << 20;

// `takes`: what this instance makes prefixes of codes by; null: nothing.
Status CheckPoint(const config::Config::Transfer& transfer, const engine::HeldProfile* const takes) {
  if (!config::FetchesPrefixes(transfer) || transfer.profile.empty()) return OkStatus();
  if (takes == nullptr && transfer.role == "decode") {
    return FailedPrecondition(fmt::format(
        "transfer.profile: {}: no file's consumer is this model, which fetches prefixes", transfer.profile));
  }
  if (transfer.point.empty() || takes == nullptr || takes->FindPoint(transfer.point) < takes->profile.points.size()) {
    return OkStatus();
  }
  std::vector<std::string> names;
  for (const engine::ScdPoint& point : takes->profile.points) names.push_back(point.name);
  return InvalidArgument(
      fmt::format("transfer.point: {} has no '{}', it has {}", takes->path, transfer.point, fmt::join(names, ", ")),
      "transfer.point");
}

// What this instance makes prefixes of codes by; null: nothing.
std::shared_ptr<const engine::HeldProfile> TakenProfile(const config::Config::Transfer& transfer,
                                                        const ServedModel& served) {
  return config::FetchesPrefixes(transfer) ? served.profiles.ToTake() : nullptr;
}

// What prefixes are sent, fetched and handed off by, as far as the role wants it.
Status MakeTransferParts(const config::Config::Transfer& transfer, const models::ModelSpec& spec, const Clock& clock,
                         ServedModel& served) {
  const std::string& tokenizer = served.parts.tokenizer_digest;
  served.shelf = std::make_unique<engine::CodeShelf>(transfer.codes_kept);
  if (transfer.role != "none") {
    StatusOr<engine::ScdProfiles> profiles = engine::ScdProfiles::Load(transfer.profile, spec, tokenizer);
    if (!profiles.ok()) return profiles.status();
    served.profiles = *std::move(profiles);
  }
  if (Status s = CheckPoint(transfer, TakenProfile(transfer, served).get()); !s.ok()) return s;
  if (config::FetchesPrefixes(transfer)) {
    StatusOr<std::unique_ptr<TransferClient>> prefixes =
        TransferClient::Make(transfer, engine::IdentityOf(spec, tokenizer), clock);
    if (!prefixes.ok()) return prefixes.status();
    served.prefixes = *std::move(prefixes);
  }
  StatusOr<std::unique_ptr<HandOffs>> hand_offs = HandOffs::Make(transfer);
  if (!hand_offs.ok()) return hand_offs.status();
  served.hand_offs = *std::move(hand_offs);
  return OkStatus();
}

// What drafts are made on.
engine::WantedView ViewOf(const config::Config::Engine& options) {
  engine::WantedView wish{.compressor = options.speculation.compressor};
  if (engine::TakesBudget(wish.compressor)) wish.kv_budget = static_cast<float>(options.speculation.kv_budget);
  return wish;
}

// `takes`: as of TakenProfile.
engine::EngineOptions OptionsOf(const config::Config& config, std::shared_ptr<const engine::HeldProfile> takes) {
  const auto& options = config.engine;
  return {.max_batch_tokens = static_cast<int32_t>(options.batch_tokens),
          .max_logits_rows = LogitsRows(options),
          .max_running = static_cast<int32_t>(options.running_max),
          .max_queued = static_cast<int32_t>(options.queue_max),
          .kv_budget_bytes = options.kv_budget,
          .prefix_cache = config.cache.enabled,
          .cache = cache::TuningOf(config.cache),
          .plans_on_a_thread = true,
          .prefill_chunk_tokens = static_cast<int32_t>(options.prefill_chunk_tokens),
          .stop_strings_max = config.limits.stop_strings_max,
          .stop_string_bytes_max = config.limits.stop_string_bytes_max,
          .logprobs_max = config.limits.logprobs_max,
          .draft_tokens_max = static_cast<int32_t>(options.speculation.draft_tokens_max),
          .draft_memory_bytes = DraftMemory(options),
          .slow_tier = {.path = options.speculation.slow_tier.path,
                        .budget_bytes = options.speculation.slow_tier.budget,
                        .direct = options.speculation.slow_tier.direct,
                        .staging_bytes = options.speculation.slow_tier.staging,
                        .synchronous = options.speculation.slow_tier.synchronous,
                        .gap_s_max = std::chrono::duration<double>(options.speculation.slow_tier.gap).count()},
          .approximates = options.approximate.allowed,
          .transfer = {.tokens_min = static_cast<int32_t>(config.transfer.tokens_min),
                       .timeout = std::chrono::nanoseconds(config.transfer.timeout).count(),
                       .profile = std::move(takes),
                       .plans = config.transfer.choose == "shortest",
                       .point = config.transfer.point,
                       .runs_there = config.transfer.verify != "here",
                       .view = config.transfer.verify == "drafted" ? ViewOf(options) : engine::WantedView{}}};
}

std::string NameOf(const config::Config::Model& model) {
  if (!model.name.empty()) return model.name;
  std::filesystem::path path = std::filesystem::path(model.path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "dir/"
  return path.filename().string();
}

}  // namespace

void EndOnDamage(const Status& status) {
  Logger("server")->critical("ending at once: {}", status.message());
  std::fflush(nullptr);
  _exit(1);
}

StatusOr<ModelParts> LoadModelFolder(const config::Config& config) {
  ModelParts parts;
  parts.name = NameOf(config.model);
  // The text side is quick to load and to refuse: first, so that a wrong folder fails before the weights are read.
  StatusOr<std::unique_ptr<models::Tokenizer>> tokenizer = models::LoadTokenizer(config.model.path);
  if (!tokenizer.ok()) return tokenizer.status();
  parts.tokenizer = *std::move(tokenizer);
  const StatusOr<std::string> file = ReadFile(config.model.path + "/tokenizer.json", kTokenizerBytesMax);
  if (file.ok()) parts.tokenizer_digest = ToHex(Sha256(*file));
  StatusOr<std::unique_ptr<models::ChatTemplate>> chat_template = models::LoadChatTemplate(config.model.path);
  if (!chat_template.ok()) return chat_template.status();
  parts.chat_template = *std::move(chat_template);
  StatusOr<models::GenerationDefaults> defaults =
      models::LoadGenerationDefaults(config.model.path, parts.tokenizer.get());
  if (!defaults.ok()) return defaults.status();
  parts.defaults = *std::move(defaults);

  const auto& options = config.engine;
  parts.pool = std::make_unique<WorkerPool>(options.threads > 0 ? static_cast<int>(options.threads) : ComputeCores(),
                                            Pinning::kWorkers);
  StatusOr<std::unique_ptr<kernels::Backend>> backend = kernels::MakeBackend(
      {.name = options.backend,
       .isa = options.isa == "auto" ? "" : options.isa,
       .activations = options.activations == "fp32" ? kernels::DType::kF32 : kernels::DType::kBf16},
      *parts.pool);
  if (!backend.ok()) {
    const Status& why = backend.status();
    return Status(why.code(), fmt::format("engine.backend {}: {}", options.backend, why.message()), "engine.backend");
  }
  parts.backend = *std::move(backend);
  StatusOr<std::unique_ptr<models::Model>> model =
      models::MakeModel({.folder = config.model.path,
                         .max_batch_tokens = static_cast<int32_t>(options.batch_tokens),
                         .max_logits_rows = LogitsRows(options),
                         .mtp_head = options.speculation.mtp_head && options.speculation.draft_tokens_max > 0,
                         .pack_to_file = options.pack_to_file,
                         .progress = LogPacking(),
                         .damaged = EndOnDamage},
                        *parts.backend);
  if (!model.ok()) return model.status();
  parts.model = *std::move(model);
  const int32_t rows = parts.model->spec().vocabulary_size;
  if (parts.tokenizer->vocabulary_size() > rows) {
    return InvalidArgument(
        fmt::format("{}/tokenizer.json: wanted ids below vocab_size {} of config.json, found {} ({})",
                    config.model.path, rows, parts.tokenizer->vocabulary_size() - 1,
                    parts.tokenizer->TokenBytes(TokenId(parts.tokenizer->vocabulary_size() - 1), false)),
        "model.path");
  }
  return parts;
}

Status CheckCompressors(const config::Config& config) {
  const auto& engine = config.engine;
  if (Status s = engine::CheckCompressor(engine.speculation.compressor, engine::ViewUse::kDrafts,
                                         "engine.speculation.compressor");
      !s.ok()) {
    return s;
  }
  return engine::CheckCompressor(engine.approximate.compressor, engine::ViewUse::kAnswers,
                                 "engine.approximate.compressor");
}

StatusOr<std::unique_ptr<ServedModel>> StartEngine(const config::Config& config, ModelParts parts, const Clock& clock) {
  const int32_t usable_ids = std::min(parts.tokenizer->vocabulary_size(), parts.model->spec().vocabulary_size);
  if (Status s = CheckDefaults(config.model.path, parts.defaults, usable_ids); !s.ok()) return s;
  auto served = std::make_unique<ServedModel>();
  served->parts = std::move(parts);
  const models::ModelSpec& spec = served->parts.model->spec();
  if (Status s = MakeTransferParts(config.transfer, spec, clock, *served); !s.ok()) return s;
  served->tier_files = cache::MakeSystemFiles();
  StatusOr<std::vector<std::unique_ptr<cache::Tier>>> tiers = cache::MakeTiers(
      config.cache.tiers, {.clock = clock, .files = *served->tier_files, .store_id = spec.cache_identity()});
  if (!tiers.ok()) return tiers.status();
  StatusOr<std::unique_ptr<engine::Engine>> created =
      engine::Engine::Create(OptionsOf(config, TakenProfile(config.transfer, *served)), std::move(served->parts.model),
                             served->parts.tokenizer.get(), clock, *std::move(tiers), served->prefixes.get());
  if (!created.ok()) return created.status();
  served->engine = *std::move(created);
  if (const std::string& why = served->engine->why_nothing_is_reused(); !why.empty()) {
    Logger("server")->warn("no request will ever reuse a prefix: {}", why);
  }
  served->engine->StartThread();
  return served;
}

TranslateContext ContextOf(const ServedModel& model, const config::Config& config,
                           std::function<Status()> interrupted) {
  return {.model_name = model.parts.name,
          .spec = model.spec(),
          .request_limits = model.engine->request_limits(),
          .tokenizer = *model.parts.tokenizer,
          .chat_template = model.parts.chat_template.get(),
          .defaults = model.parts.defaults,
          .limits = config.limits,
          .drafters = model.engine->drafters(),
          .speculation = config.engine.speculation,
          .approximate = config.engine.approximate,
          .transfer = config.transfer,
          .hand_offs = model.hand_offs.get(),
          .interrupted = std::move(interrupted)};
}

}  // namespace invar::server
