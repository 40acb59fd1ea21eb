// The engine: backend, batches, memory, speculation, approximate answers.
#include <chrono>

#include "config/backend_names.h"
#include "config/drafter_names.h"
#include "config/fields/sections.h"
#include "config/isa_names.h"

namespace invar::config {
namespace {

constexpr size_t kCompressorBytesMax = 256;

std::vector<std::string_view> IsaChoices() {
  std::vector<std::string_view> choices = {"auto"};
  choices.insert(choices.end(), kIsaNames.begin(), kIsaNames.end());
  return choices;
}

}  // namespace

using std::chrono::milliseconds;
using std::chrono::minutes;

std::vector<Field> EngineFields() {
  return {
      {"engine.backend",
       ChoiceKind{+[](Config& c) -> std::string& { return c.engine.backend; }, Choices(kBackendNames)},
       "Who computes: `cpu`; `cuda`, and no start where its module, a driver or a device is missing; `auto`, the "
       "latter "
       "where it can be had and else `cpu`; or the slow scalar definition `reference`."},
      {"engine.isa", ChoiceKind{+[](Config& c) -> std::string& { return c.engine.isa; }, IsaChoices()},
       "Instruction set of the cpu backend; the bits do not depend on it."},
      {"engine.activations",
       ChoiceKind{+[](Config& c) -> std::string& { return c.engine.activations; }, {"bf16", "fp32"}},
       "Precision of activations; part of the numerics id."},
      {"engine.threads", IntKind{+[](Config& c) -> int64_t& { return c.engine.threads; }, 0, 1024},
       "Compute threads; 0: one a core that the process may use. The bits do not depend on it."},
      {"engine.pack_to_file", BoolKind{+[](Config& c) -> bool& { return c.engine.pack_to_file; }},
       "Keep packed weights in a file beside the model, so that the next start only maps them."},
      {"engine.batch_tokens", IntKind{+[](Config& c) -> int64_t& { return c.engine.batch_tokens; }, 1, 65536},
       "Token budget of one step: prefill and decode together."},
      {"engine.prefill_chunk_tokens",
       IntKind{+[](Config& c) -> int64_t& { return c.engine.prefill_chunk_tokens; }, 1, 65536},
       "Most prompt tokens of one request in one step."},
      {"engine.running_max", IntKind{+[](Config& c) -> int64_t& { return c.engine.running_max; }, 1, 4096},
       "Most requests that hold KV memory at once."},
      {"engine.queue_max", IntKind{+[](Config& c) -> int64_t& { return c.engine.queue_max; }, 1, 1'000'000},
       "Most waiting requests; further ones get RESOURCE_EXHAUSTED."},
      {"engine.kv_budget", BytesKind{+[](Config& c) -> int64_t& { return c.engine.kv_budget; }, kMiB, 64 * kTiB},
       "Memory for attention KV and recurrent states."},
      {"engine.speculation.drafter",
       ChoiceKind{+[](Config& c) -> std::string& { return c.engine.speculation.drafter; }, Choices(kDrafterNames)},
       "Who drafts for LOSSLESS requests that name nobody; where it cannot draft for the model, they are refused with "
       "the names of those that can."},
      {"engine.speculation.draft_tokens_max",
       IntKind{+[](Config& c) -> int64_t& { return c.engine.speculation.draft_tokens_max; }, 0, 512},
       "Most tokens of one draft; 0: LOSSLESS requests are refused. State logs of drafts take up to a sixteenth of "
       "engine.kv_budget on models with recurrent states."},
      {"engine.speculation.compressor",
       StringKind{+[](Config& c) -> std::string& { return c.engine.speculation.compressor; }, kCompressorBytesMax},
       "What the drafters compressed_kv and ngram+compressed_kv draft on, for requests that name nothing: a kind, or "
       "kind:settings."},
      {"engine.speculation.kv_budget",
       ShareKind{+[](Config& c) -> double& { return c.engine.speculation.kv_budget; }, 0.01, 1.0},
       "Share of the full KV's bytes that it may keep for drafting, of requests that name none; compressors that keep "
       "every token take none."},
      {"engine.speculation.draft_memory",
       BytesKind{+[](Config& c) -> int64_t& { return c.engine.speculation.draft_memory; }, 0, 64 * kTiB},
       "Most memory for what drafts are made on, beside engine.kv_budget; 0: an eighth of that. Requests that find "
       "none decode plainly until there is some. With a slow tier, full KV has what drafts do not use of it while "
       "rounds do not pay."},
      {"engine.speculation.mtp_head", BoolKind{+[](Config& c) -> bool& { return c.engine.speculation.mtp_head; }},
       "Serve the multi-token head of a model that carries one, for the drafter mtp: each token then takes the KV of "
       "one "
       "attention layer more. Needs draft_tokens_max above 0."},
      {"engine.speculation.slow_tier.path",
       StringKind{+[](Config& c) -> std::string& { return c.engine.speculation.slow_tier.path; }, kPathBytesMax},
       "Folder of the slow tier: full KV of LOSSLESS requests that draft on compressed KV moves there when "
       "engine.kv_budget has no room for all, and streams back a layer at a time to verify; the file in it has no name "
       "and ends with the process. Empty: no such tier."},
      {"engine.speculation.slow_tier.budget",
       BytesKind{+[](Config& c) -> int64_t& { return c.engine.speculation.slow_tier.budget; }, kMiB, 1024 * kTiB},
       "Most bytes of it; requests whose KV finds no room stay in the fast tier."},
      {"engine.speculation.slow_tier.direct",
       BoolKind{+[](Config& c) -> bool& { return c.engine.speculation.slow_tier.direct; }},
       "Read it around the page cache (O_DIRECT), so that it takes no memory beside its staging."},
      {"engine.speculation.slow_tier.staging",
       BytesKind{+[](Config& c) -> int64_t& { return c.engine.speculation.slow_tier.staging; }, kMiB, kTiB},
       "Memory for layers on their way, beside engine.kv_budget: two of each request that verifies at least, so it "
       "says "
       "how many do at once."},
      {"engine.speculation.slow_tier.synchronous",
       BoolKind{+[](Config& c) -> bool& { return c.engine.speculation.slow_tier.synchronous; }},
       "All draft, then all are verified, in any case; else some draft while others' KV streams where that is expected "
       "to be faster."},
      {"engine.speculation.slow_tier.gap",
       DurationKind{+[](Config& c) -> Duration& { return c.engine.speculation.slow_tier.gap; }, milliseconds(0),
                    minutes(60)},
       "Longest time that a request should wait between two verifies; fewer share the slow tier then. 0s: any."},
      {"engine.approximate.allowed", BoolKind{+[](Config& c) -> bool& { return c.engine.approximate.allowed; }},
       "Whether requests may ask for APPROXIMATE answers, decoded on compressed KV; they never touch those of others."},
      {"engine.approximate.compressor",
       StringKind{+[](Config& c) -> std::string& { return c.engine.approximate.compressor; }, kCompressorBytesMax},
       "Compressor of APPROXIMATE requests that name none: a kind, or kind:setting=value,... (docs/COMPRESSION.md)."},
      {"engine.approximate.kv_budget",
       ShareKind{+[](Config& c) -> double& { return c.engine.approximate.kv_budget; }, 0.01, 1.0},
       "Share of the full KV's bytes that APPROXIMATE requests may keep that name none; compressors that keep every "
       "token in fewer bits have no use for it."},
  };
}

}  // namespace invar::config
