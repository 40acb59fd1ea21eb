// What the daemon serves: one model with its text side, its defaults and the compute below it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/worker_pool.h"
#include "cache/make_tiers.h"
#include "config/config.h"
#include "engine/code_shelf.h"
#include "engine/engine.h"
#include "engine/scd_profiles.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/text.h"
#include "server/peers/transfer_client.h"
#include "server/wire/hand_off.h"
#include "server/wire/translate.h"

namespace invar::server {

// The loaded parts, before the engine takes the model. Members die bottom-up: what is used outlives its user.
struct ModelParts {
  std::string name;  // What requests call it.
  std::unique_ptr<WorkerPool> pool;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<models::Tokenizer> tokenizer;
  std::string tokenizer_digest;                         // Of its file, in hexadecimal; empty: not known.
  std::unique_ptr<models::ChatTemplate> chat_template;  // Null: the model has none.
  models::GenerationDefaults defaults;
  std::unique_ptr<models::Model> model;
};

// What LoadModelFolder does where the packed weights that it serves turn out to be damaged: ends the process, exit code
// 1. No further answer may come from them, and the next start packs anew.
[[noreturn]] void EndOnDamage(const Status& status);

// Loads the model the configuration names. Errors: those of the loaders, naming file, key, wanted and found.
// Time: up to minutes for a large model that is not packed yet. Threads: any; one at a time.
StatusOr<ModelParts> LoadModelFolder(const config::Config& config);

// How the daemon comes by its model: LoadModelFolder in invard, models of tests in tests.
using ModelLoader = std::function<StatusOr<ModelParts>(const config::Config&)>;

// Model and running engine. Immutable once made, apart from the engine's own state. Threads: any.
struct ServedModel {
  ModelParts parts;                              // parts.model has moved into the engine.
  std::unique_ptr<cache::FileLayer> tier_files;  // Of the engine's tiers.
  engine::ScdProfiles profiles;                  // Of prefixes in codes.
  std::unique_ptr<engine::CodeShelf> shelf;      // Of what went out of them.
  std::unique_ptr<TransferClient> prefixes;      // Null: none are fetched.
  std::unique_ptr<HandOffs> hand_offs;           // Null: none are signed or understood.
  std::unique_ptr<engine::Engine> engine;

  const models::ModelSpec& spec() const { return engine->spec(); }
};

// Whether the engine knows the compressors that the configuration names. Errors: INVALID_ARGUMENT naming the field.
Status CheckCompressors(const config::Config& config);

// Requires: CheckCompressors. Errors: as Engine::Create; INVALID_ARGUMENT naming the model's file whose defaults no
// request could use. Effects: allocates the KV budget and starts the engine thread.
StatusOr<std::unique_ptr<ServedModel>> StartEngine(const config::Config& config, ModelParts parts, const Clock& clock);

// What requests to the model are judged against (translate.h). Requires: both outlive it.
TranslateContext ContextOf(const ServedModel& model, const config::Config& config, std::function<Status()> interrupted);

}  // namespace invar::server
