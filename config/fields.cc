// The table of fields and what follows from it. Numbers are parsed with from_chars (no locale, no octal, no sign
// games); sizes and durations carry their unit in the value, so that a reader of the file never has to look it up.
#include "config/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "config/backend_names.h"
#include "config/cache_names.h"
#include "config/drafter_names.h"
#include "config/isa_names.h"
#include "config/transfer.h"

namespace invar::config {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr int64_t kGiB = 1024 * kMiB;
constexpr int64_t kTiB = 1024 * kGiB;
constexpr size_t kPathBytesMax = 4096;
constexpr size_t kCompressorBytesMax = 256;

std::vector<std::string_view> IsaChoices() {
  std::vector<std::string_view> choices = {"auto"};
  choices.insert(choices.end(), kIsaNames.begin(), kIsaNames.end());
  return choices;
}

template <size_t kCount>
std::vector<std::string_view> Choices(const std::array<std::string_view, kCount>& names) {
  return {names.begin(), names.end()};
}

std::vector<Field> MakeFields() {
  std::vector<Field> fields = {
      {"version", IntKind{+[](Config& c) -> int64_t& { return c.version; }, 1, 1}, "Version of this schema."},

      {"model.path", StringKind{+[](Config& c) -> std::string& { return c.model.path; }, kPathBytesMax},
       "Folder of the model in Hugging Face layout; required to start."},
      {"model.name", StringKind{+[](Config& c) -> std::string& { return c.model.name; }, 256},
       "Name that requests and metrics use; empty: the folder's name."},

      {"server.listen", AddressKind{+[](Config& c) -> std::string& { return c.server.listen; }, false},
       "Address of the gRPC port; port 0 lets the system choose."},
      {"server.allow_insecure", BoolKind{+[](Config& c) -> bool& { return c.server.allow_insecure; }},
       "Listen beyond loopback although everybody there may call (neither auth.tokens nor tls.client_ca) or may read "
       "along (no TLS)."},
      {"server.connections_max", IntKind{+[](Config& c) -> int64_t& { return c.server.connections_max; }, 1, 100'000},
       "Most connections at once; further ones are closed at once. The limit of open files may lower it.",
       Takes::kOnReload},
      {"server.connections_per_address_max",
       IntKind{+[](Config& c) -> int64_t& { return c.server.connections_per_address_max; }, 1, 100'000},
       "Most connections at once from one IP address.", Takes::kOnReload},
      {"server.handshake_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.server.handshake_timeout; }, milliseconds(100), minutes(2)},
       "A connection that has not finished its HTTP/2 and TLS handshake by then is closed."},
      {"server.concurrent_streams_max",
       IntKind{+[](Config& c) -> int64_t& { return c.server.concurrent_streams_max; }, 1, 100'000},
       "Most calls at once on one connection."},
      {"server.request_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.server.request_bytes_max; }, kKiB, kGiB},
       "Largest request message."},
      {"server.resets_burst", IntKind{+[](Config& c) -> int64_t& { return c.server.resets_burst; }, 1, 1'000'000},
       "Cancelled calls one connection may have beyond the rate below before it is closed (HTTP/2 rapid reset).",
       Takes::kOnReload},
      {"server.resets_per_second",
       IntKind{+[](Config& c) -> int64_t& { return c.server.resets_per_second; }, 1, 1'000'000},
       "Cancelled calls a second that one connection may have for ever. A client that gives a call up at its deadline "
       "cancels it.",
       Takes::kOnReload},

      {"tls.certificate", StringKind{+[](Config& c) -> std::string& { return c.tls.certificate; }, kPathBytesMax},
       "PEM file of the server's certificate chain; empty: no TLS.", Takes::kOnReload},
      {"tls.key", StringKind{+[](Config& c) -> std::string& { return c.tls.key; }, kPathBytesMax},
       "PEM file of the certificate's private key.", Takes::kOnReload},
      {"tls.client_ca", StringKind{+[](Config& c) -> std::string& { return c.tls.client_ca; }, kPathBytesMax},
       "PEM file of the authorities that sign client certificates; given: every client must show one.",
       Takes::kOnReload},

      {"auth.tokens", TokensKind{+[](Config& c) -> std::vector<ApiToken>& { return c.auth.tokens; }},
       "API tokens as {tenant, sha256 of the token, admin: true or false, instance: true or false}; given: every call "
       "needs `authorization: Bearer TOKEN`. What all tenants have in the cache is shown and flushed for tokens with "
       "`admin: true` only; those with `instance: true` are of other instances, which fetch prefixes for all tenants. "
       "Both are false where they are left out. In --set and the environment: `TENANT:SHA256`, `TENANT:SHA256:admin` "
       "or "
       "`TENANT:SHA256:instance`, separated by commas.",
       Takes::kOnReload},
      {"auth.health_exempt", BoolKind{+[](Config& c) -> bool& { return c.auth.health_exempt; }},
       "Answer grpc.health.v1 without a token, for probes that cannot send one.", Takes::kOnReload},

      {"ops.listen", AddressKind{+[](Config& c) -> std::string& { return c.ops.listen; }, true},
       "Address of the HTTP port with /metrics, /livez, /readyz, /version, /configz and /cache; `off` closes it."},
      {"ops.allow_insecure", BoolKind{+[](Config& c) -> bool& { return c.ops.allow_insecure; }},
       "Open the HTTP port beyond loopback: it has neither TLS nor tokens, and shows the configuration and the load to "
       "everybody who reaches it."},

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

      {"cache.enabled", BoolKind{+[](Config& c) -> bool& { return c.cache.enabled; }},
       "Reuse attention KV and recurrent states of earlier requests; what they take of engine.kv_budget is given up "
       "where "
       "running requests need it."},
      {"cache.placement",
       ChoiceKind{+[](Config& c) -> std::string& { return c.cache.placement; }, Choices(kPlacementNames)},
       "Where a prompt leaves recurrent states: where earlier prompts of its kind were come back to (`optimal-dp`), or "
       "as other servers do, for comparison. The bits do not depend on it."},
      {"cache.planned_checkpoints_max",
       IntKind{+[](Config& c) -> int64_t& { return c.cache.planned_checkpoints_max; }, 0, 1024},
       "Most checkpoints a prompt leaves beside those at its end, at branches and at hints."},
      {"cache.eviction",
       ChoiceKind{+[](Config& c) -> std::string& { return c.cache.eviction; }, Choices(kEvictionNames)},
       "What goes first where memory is short; `duel` follows the order that has saved more of late."},
      {"cache.probation_share", ShareKind{+[](Config& c) -> double& { return c.cache.probation_share; }, 0.0, 1.0},
       "Of engine.kv_budget, the most that states placed on expectation alone hold before their first use; room for "
       "eight states within a quarter of the budget, and for one, they have in any case. 0: none are placed so."},
      {"cache.tiers.read_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.cache.tiers.read_timeout; }, milliseconds(1), minutes(10)},
       "A tier that has not given back a record by then costs a miss."},
      {"cache.tiers.write_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.cache.tiers.write_timeout; }, milliseconds(1), minutes(10)},
       "A record that a tier has not stored by then is given up."},
      {"cache.tiers.queue_max", IntKind{+[](Config& c) -> int64_t& { return c.cache.tiers.queue_max; }, 1, 65536},
       "Most reads, and as many writes, that one tier holds at once; further writes are dropped, further reads wait "
       "for "
       "others of their load, or are misses."},
      {"cache.tiers.queue_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.cache.tiers.queue_bytes_max; }, kMiB, kTiB},
       "Most bytes of records on their way from tiers, and as many on their way to them: of all tiers together, and of "
       "each. A longer prefix is read in parts that end where a request can resume; a part that is larger by itself "
       "goes alone."},
      {"cache.tiers.threads", IntKind{+[](Config& c) -> int64_t& { return c.cache.tiers.threads; }, 1, 64},
       "I/O threads of each tier."},
      {"cache.tiers.ram.budget",
       BytesKind{+[](Config& c) -> int64_t& { return c.cache.tiers.ram.budget; }, 0, 64 * kTiB},
       "Host memory for records beyond engine.kv_budget; 0: no such tier."},
      {"cache.tiers.disk.path",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.disk.path; }, kPathBytesMax},
       "Folder of the disk tier, for one daemon and one model; it survives restarts; empty: no such tier."},
      {"cache.tiers.disk.budget",
       BytesKind{+[](Config& c) -> int64_t& { return c.cache.tiers.disk.budget; }, kMiB, 1024 * kTiB},
       "Most bytes of the disk tier; what was used least recently goes first."},
      {"cache.tiers.disk.direct", BoolKind{+[](Config& c) -> bool& { return c.cache.tiers.disk.direct; }},
       "Read and write around the page cache where the file system can (O_DIRECT)."},
      {"cache.tiers.remote.address",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.remote.address; }, kPathBytesMax},
       "HOST:PORT or unix:PATH of a Redis or Valkey server that instances share; empty: no such tier."},
      {"cache.tiers.remote.username",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.remote.username; }, 256},
       "User name there; empty: the server's default user."},
      {"cache.tiers.remote.password_file",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.remote.password_file; }, kPathBytesMax},
       "File whose first line is the password there; empty: none is sent."},
      {"cache.tiers.remote.hmac_secret_file",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.remote.hmac_secret_file; }, kPathBytesMax},
       "File whose first line, 32 bytes or more, is the secret that instances sharing the server have in common: "
       "entries are authenticated with it. Required with an address."},
      {"cache.tiers.remote.key_prefix",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.remote.key_prefix; }, 64},
       "Names of all entries begin so."},
      {"cache.tiers.remote.ttl",
       DurationKind{+[](Config& c) -> Duration& { return c.cache.tiers.remote.ttl; }, seconds(1), hours(24 * 365)},
       "Entries expire after so long."},
      {"cache.tiers.remote.tls", BoolKind{+[](Config& c) -> bool& { return c.cache.tiers.remote.tls; }},
       "Speak TLS to the server and check its certificate."},
      {"cache.tiers.remote.tls_ca",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.remote.tls_ca; }, kPathBytesMax},
       "PEM file of the authorities that may sign it; empty: the system's."},
      {"cache.tiers.remote.tls_certificate",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.remote.tls_certificate; }, kPathBytesMax},
       "PEM file of the certificate chain shown to the server; empty: none."},
      {"cache.tiers.remote.tls_key",
       StringKind{+[](Config& c) -> std::string& { return c.cache.tiers.remote.tls_key; }, kPathBytesMax},
       "PEM file of that certificate's private key."},
      {"cache.tiers.remote.allow_insecure",
       BoolKind{+[](Config& c) -> bool& { return c.cache.tiers.remote.allow_insecure; }},
       "Send records in plain text to another machine: they can be read on the way, though not changed unseen."},

      {"transfer.role",
       ChoiceKind{+[](Config& c) -> std::string& { return c.transfer.role; }, {"none", "prefill", "decode", "both"}},
       "`prefill`: computes prompts for other instances and sends them KV and states; `decode`: fetches them; `both`; "
       "`none`: neither. All roles answer requests."},
      {"transfer.mode",
       ChoiceKind{+[](Config& c) -> std::string& { return c.transfer.mode; }, {"none", "exact", "any"}},
       "What requests get that leave kv_policy.transfer open: `exact` fetches from instances of equal weights, with "
       "the bits of a run here; `any` also from those of other weights, in codes of transfer.profile: such answers are "
       "approximate, and say so.",
       Takes::kOnReload},
      {"transfer.producers", StringKind{+[](Config& c) -> std::string& { return c.transfer.producers; }, 65536},
       "The instances that prefixes may come from, and no others: `NAME=HOST:PORT`, separated by commas."},
      {"transfer.profile", StringKind{+[](Config& c) -> std::string& { return c.transfer.profile; }, 65536},
       "Files that `invar calibrate` wrote, separated by commas: on a decode instance the one that makes prefixes of "
       "another model's codes, on a prefill instance one for each fine-tune that it serves. Each must be of the model "
       "that is loaded, on one of its sides."},
      {"transfer.point", StringKind{+[](Config& c) -> std::string& { return c.transfer.point; }, 64},
       "The point of the profile that prefixes are fetched by; empty: the one whose answers are closest to the model's "
       "own."},
      {"transfer.choose",
       ChoiceKind{+[](Config& c) -> std::string& { return c.transfer.choose; }, {"shortest", "always"}},
       "`shortest`: asks producers what they have and fetches only what is sooner there than here, from whom and in "
       "the "
       "form that is soonest, by the rates that were measured; `always`: whatever tokens_min allows."},
      {"transfer.codes_kept", BytesKind{+[](Config& c) -> int64_t& { return c.transfer.codes_kept; }, kMiB, kTiB},
       "Most bytes of codes that are kept once they went out, for whoever asks for the same prefix by the same profile "
       "again; beside engine.kv_budget."},
      {"transfer.name", StringKind{+[](Config& c) -> std::string& { return c.transfer.name; }, 64},
       "How consumers call this instance in their transfer.producers; given: its answers carry a hand-off in "
       "kv_transfer_params_json, which a gateway relays to a decode instance. Needs hmac_secret_file."},
      {"transfer.hmac_secret_file",
       StringKind{+[](Config& c) -> std::string& { return c.transfer.hmac_secret_file; }, kPathBytesMax},
       "File whose first line, 32 bytes at least, is the secret that hand-offs are signed with; the same for all "
       "instances; empty: hand-offs are refused."},
      {"transfer.tokens_min", IntKind{+[](Config& c) -> int64_t& { return c.transfer.tokens_min; }, 1, 1'000'000},
       "Where the cache lacks fewer tokens of a prompt, they are run here."},
      {"transfer.timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.transfer.timeout; }, milliseconds(100), minutes(10)},
       "A prefix that has not come by then is run here; never later than half of the time its request has left."},
      {"transfer.lease", DurationKind{+[](Config& c) -> Duration& { return c.transfer.lease; }, seconds(1), minutes(1)},
       "A side that hears nothing of the other for so long ends the transfer and gives up what it holds for it. Both "
       "send a heartbeat four times a second."},
      {"transfer.bytes_max", BytesKind{+[](Config& c) -> int64_t& { return c.transfer.bytes_max; }, kMiB, kTiB},
       "Most bytes of prefixes on their way here, and as many on their way out, beside engine.kv_budget; what has no "
       "room is run here, or refused."},
      {"transfer.credit_bytes", BytesKind{+[](Config& c) -> int64_t& { return c.transfer.credit_bytes; }, kMiB, kGiB},
       "Most bytes of one prefix that its producer may have sent and that have not been checked here."},
      {"transfer.parallel", IntKind{+[](Config& c) -> int64_t& { return c.transfer.parallel; }, 1, 256},
       "Most prefixes that are fetched at once, a thread each; as many more wait."},
      {"transfer.token_file",
       StringKind{+[](Config& c) -> std::string& { return c.transfer.token_file; }, kPathBytesMax},
       "File whose first line is the API token that producers are shown; empty: none. It wants `instance: true` "
       "there where requests of several tenants come here."},
      {"transfer.tls", BoolKind{+[](Config& c) -> bool& { return c.transfer.tls; }}, "Speak TLS with producers."},
      {"transfer.tls_ca", StringKind{+[](Config& c) -> std::string& { return c.transfer.tls_ca; }, kPathBytesMax},
       "PEM file of the authorities that sign producers' certificates; empty: those of the system."},
      {"transfer.tls_certificate",
       StringKind{+[](Config& c) -> std::string& { return c.transfer.tls_certificate; }, kPathBytesMax},
       "PEM file of the certificate that producers are shown; empty: none."},
      {"transfer.tls_key", StringKind{+[](Config& c) -> std::string& { return c.transfer.tls_key; }, kPathBytesMax},
       "PEM file of its private key."},
      {"transfer.allow_insecure", BoolKind{+[](Config& c) -> bool& { return c.transfer.allow_insecure; }},
       "Speak with producers on other machines without TLS."},

      {"limits.request_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.limits.request_timeout; }, milliseconds(1), hours(24)},
       "Longest life of a request of any kind, queue included; an earlier deadline of the caller wins.",
       Takes::kOnReload},
      {"limits.open_request_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.limits.open_request_bytes_max; }, kMiB, kTiB},
       "Memory of the requests, and of the answers of unary calls, of all open calls together; what exceeds it gets "
       "RESOURCE_EXHAUSTED.",
       Takes::kOnReload},
      {"limits.refused_request_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.limits.refused_request_bytes_max; }, 0, kTiB},
       "Memory of the requests of calls that were refused (no token, a limit) and have not taken their status yet; "
       "what exceeds it is reset without one.",
       Takes::kOnReload},
      {"limits.preparing_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.preparing_max; }, 1, 1'000'000},
       "Most calls that wait to be tokenized or rendered; further ones get RESOURCE_EXHAUSTED."},
      {"limits.tenant_share_percent",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.tenant_share_percent; }, 1, 100},
       "Where auth.tokens name several tenants: most that one may take of limits.open_request_bytes_max, of "
       "limits.preparing_max, and in Generate calls of engine.running_max and queue_max together.",
       Takes::kOnReload},
      {"limits.text_bytes_max", BytesKind{+[](Config& c) -> int64_t& { return c.limits.text_bytes_max; }, 1, 16 * kMiB},
       "Largest text, chat or other string input of one request, all strings together.", Takes::kOnReload},
      {"limits.stop_strings_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.stop_strings_max; }, 0, 1024},
       "Most stop strings of one request."},
      {"limits.stop_string_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.limits.stop_string_bytes_max; }, 1, 64 * kKiB},
       "Longest stop string."},
      {"limits.stop_token_ids_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.stop_token_ids_max; }, 0, 65536},
       "Most stop token ids of one request.", Takes::kOnReload},
      {"limits.logit_bias_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.logit_bias_max; }, 0, 1'000'000},
       "Most logit_bias entries of one request.", Takes::kOnReload},
      {"limits.allowed_token_ids_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.allowed_token_ids_max; }, 0, 1'000'000},
       "Most allowed_token_ids of one request.", Takes::kOnReload},
      {"limits.logprobs_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.logprobs_max; }, 0, 1000},
       "Most alternatives beside the chosen token, for logprobs and prompt_logprobs."},
      {"limits.message_logprobs_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.message_logprobs_max; }, 0, 1'000'000},
       "Most log-probabilities of one message, tokens x (1 + alternatives), of the prompt and, without stream, of the "
       "output: keeps it below the 4 MiB that gRPC clients take.",
       Takes::kOnReload},
      {"limits.chat_messages_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.chat_messages_max; }, 1, 1'000'000},
       "Most messages and message parts of one chat.", Takes::kOnReload},
      {"limits.template_options_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.template_options_max; }, 0, 65536},
       "Most members of a chat's template_options_json.", Takes::kOnReload},
      {"limits.checkpoint_hints_max",
       IntKind{+[](Config& c) -> int64_t& { return c.limits.checkpoint_hints_max; }, 0, 65536},
       "Most checkpoint_hints of one request.", Takes::kOnReload},
      {"limits.salt_bytes_max", BytesKind{+[](Config& c) -> int64_t& { return c.limits.salt_bytes_max; }, 0, 64 * kKiB},
       "Longest cache salt.", Takes::kOnReload},
      {"limits.priority_max", IntKind{+[](Config& c) -> int64_t& { return c.limits.priority_max; }, 0, 1'000'000},
       "Highest scheduling priority a request may ask for; the lowest is its negative.", Takes::kOnReload},
      {"limits.stream_buffer", BytesKind{+[](Config& c) -> int64_t& { return c.limits.stream_buffer; }, kKiB, kGiB},
       "Output kept for one reader that lags; its request pauses beyond that.", Takes::kOnReload},
      {"limits.slow_reader_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.limits.slow_reader_timeout; }, milliseconds(100), hours(24)},
       "A reader that stays behind so long is cut off; one that then takes not even its status, or not the answer of a "
       "unary call, is reset after as long again and two seconds."},

      {"drain.timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.drain.timeout; }, milliseconds(0), hours(24)},
       "After SIGTERM, running requests may go on so long before they end with UNAVAILABLE.", Takes::kOnReload},
      {"drain.persist_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.drain.persist_timeout; }, milliseconds(0), hours(24)},
       "After that, the tiers of the prefix cache may take so long to store what only memory holds, the most recently "
       "used first; a further stop signal ends it.",
       Takes::kOnReload},
      {"health.stall_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.health.stall_timeout; }, milliseconds(100), hours(24)},
       "/livez fails when work exists and no step has ended for so long.", Takes::kOnReload},
      {"health.probe_period",
       DurationKind{+[](Config& c) -> Duration& { return c.health.probe_period; }, milliseconds(0), hours(1)},
       "How often the daemon dials its own gRPC port; /livez fails when that has not reacted for health.stall_timeout. "
       "0s: never."},
      {"metrics.vllm_aliases", BoolKind{+[](Config& c) -> bool& { return c.metrics.vllm_aliases; }},
       "Also export the vllm:* names that dashboards and autoscalers already read."},
      {"log.format", ChoiceKind{+[](Config& c) -> std::string& { return c.log.format; }, {"json", "text"}},
       "Form of the log lines on stderr."},
      {"log.requests", BoolKind{+[](Config& c) -> bool& { return c.log.requests; }},
       "One line of facts at the end of each request, at level info; never its text.", Takes::kOnReload},
      {"log.level",
       ChoiceKind{+[](Config& c) -> std::string& { return c.log.level; }, {"trace", "debug", "info", "warn", "error"}},
       "Least severe level that is logged.", Takes::kOnReload},
  };
  return fields;
}

const std::vector<Field>& Table() {
  static const std::vector<Field> table = MakeFields();
  return table;
}

Status Wanted(const Field& field, const std::string_view found) {
  constexpr size_t kShownBytes = 80;
  return InvalidArgument(
      fmt::format("{}: wants {}, found '{}'", field.path, DescribeKind(field), found.substr(0, kShownBytes)),
      std::string(field.path));
}

// A decimal integer as people write it: no sign but '-', no leading zero.
bool ParseInt(const std::string_view text, int64_t& value) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0') || text == "-0") return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Digits with a point between them, or digits alone: "0.02", "1".
bool ParseShare(const std::string_view text, double& value) {
  if (text.find_first_not_of("0123456789.") != std::string_view::npos || text.starts_with('.') || text.ends_with('.')) {
    return false;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  return error == std::errc() && end == text.data() + text.size();
}

struct Unit {
  std::string_view name;
  int64_t factor;
};
constexpr std::array kByteUnits = {Unit{"KiB", kKiB}, Unit{"MiB", kMiB}, Unit{"GiB", kGiB}, Unit{"TiB", kTiB}};
constexpr std::array kTimeUnits = {Unit{"ms", 1}, Unit{"s", 1000}, Unit{"m", 60'000}, Unit{"h", 3'600'000}};

// "12KiB": an integer and one of `units`, without overflow.
bool ParseWithUnit(const std::string_view text, const std::span<const Unit> units, int64_t& value) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  int64_t number = 0;
  if (!ParseInt(text.substr(0, digits), number)) return false;
  for (const Unit& unit : units) {
    if (text.substr(digits) != unit.name) continue;
    if (number > INT64_MAX / unit.factor) return false;
    value = number * unit.factor;
    return true;
  }
  return false;
}

std::string PrintWithUnit(const int64_t value, const std::span<const Unit> units, const std::string_view zero) {
  if (value == 0) return std::string(zero);
  for (size_t i = units.size(); i-- > 0;) {
    if (value % units[i].factor == 0) return fmt::format("{}{}", value / units[i].factor, units[i].name);
  }
  return fmt::format("{}", value);
}

std::string PrintBytes(const int64_t bytes) { return PrintWithUnit(bytes, kByteUnits, "0"); }
std::string PrintDuration(const Duration duration) { return PrintWithUnit(duration.count(), kTimeUnits, "0s"); }

// Double-quoted YAML.
std::string Quote(const std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct Setter {
  const Field& field;
  std::string_view text;
  Config& config;

  Status operator()(const BoolKind& kind) const {
    if (text != "true" && text != "false") return Wanted(field, text);
    kind.member(config) = text == "true";
    return OkStatus();
  }
  Status operator()(const IntKind& kind) const {
    int64_t value = 0;
    if (!ParseInt(text, value) || value < kind.min || value > kind.max) return Wanted(field, text);
    kind.member(config) = value;
    return OkStatus();
  }
  Status operator()(const ShareKind& kind) const {
    double value = 0;
    if (!ParseShare(text, value) || value < kind.min || value > kind.max) return Wanted(field, text);
    kind.member(config) = value;
    return OkStatus();
  }
  Status operator()(const BytesKind& kind) const {
    int64_t value = 0;
    if (!ParseInt(text, value) && !ParseWithUnit(text, kByteUnits, value)) return Wanted(field, text);
    if (value < kind.min || value > kind.max) return Wanted(field, text);
    kind.member(config) = value;
    return OkStatus();
  }
  Status operator()(const DurationKind& kind) const {
    int64_t value = 0;
    if (!ParseWithUnit(text, kTimeUnits, value)) return Wanted(field, text);
    if (Duration(value) < kind.min || Duration(value) > kind.max) return Wanted(field, text);
    kind.member(config) = Duration(value);
    return OkStatus();
  }
  Status operator()(const ChoiceKind& kind) const {
    if (std::ranges::find(kind.choices, text) == kind.choices.end()) return Wanted(field, text);
    kind.member(config) = text;
    return OkStatus();
  }
  Status operator()(const StringKind& kind) const {
    const bool has_control = std::ranges::any_of(text, [](const unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (text.size() > kind.bytes_max || has_control) return Wanted(field, text);
    kind.member(config) = text;
    return OkStatus();
  }
  Status operator()(const AddressKind& kind) const {
    if (!(kind.may_be_off && text == "off") && !ParseAddress(text).ok()) return Wanted(field, text);
    kind.member(config) = text;
    return OkStatus();
  }
  Status operator()(const TokensKind& kind) const {
    std::vector<ApiToken> tokens;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      std::string_view entry = text.substr(begin, end - begin);
      const auto has = [&](const std::string_view right) {
        if (!entry.ends_with(right)) return false;
        entry.remove_suffix(right.size());
        return true;
      };
      const bool admin = has(":admin");
      const bool instance = has(":instance");
      const size_t colon = entry.rfind(':');
      if (colon == std::string_view::npos) return Wanted(field, "an entry without ':'");
      StatusOr<ApiToken> token = MakeToken(entry.substr(0, colon), entry.substr(colon + 1));
      if (!token.ok()) return token.status();
      token->admin = admin;
      token->instance = instance;
      tokens.push_back(*std::move(token));
      begin = end + 1;
    }
    kind.member(config) = std::move(tokens);
    return OkStatus();
  }
};

struct Printer {
  Config& config;
  bool mask_secrets;

  std::string operator()(const BoolKind& kind) const { return kind.member(config) ? "true" : "false"; }
  std::string operator()(const IntKind& kind) const { return fmt::format("{}", kind.member(config)); }
  std::string operator()(const ShareKind& kind) const { return fmt::format("{}", kind.member(config)); }
  std::string operator()(const BytesKind& kind) const { return PrintBytes(kind.member(config)); }
  std::string operator()(const DurationKind& kind) const { return PrintDuration(kind.member(config)); }
  std::string operator()(const ChoiceKind& kind) const { return kind.member(config); }
  std::string operator()(const StringKind& kind) const { return Quote(kind.member(config)); }
  std::string operator()(const AddressKind& kind) const { return Quote(kind.member(config)); }
  std::string operator()(const TokensKind& kind) const {
    std::string out = "[";
    for (const ApiToken& token : kind.member(config)) {
      if (out.size() > 1) out += ", ";
      out += fmt::format("{{tenant: {}, sha256: {}{}{}}}", Quote(token.tenant),
                         Quote(mask_secrets ? std::string_view("(hidden)") : std::string_view(token.sha256)),
                         token.admin ? ", admin: true" : "", token.instance ? ", instance: true" : "");
    }
    return out + "]";
  }
};

struct Describer {
  std::string operator()(const BoolKind&) const { return "true or false"; }
  std::string operator()(const IntKind& kind) const {
    if (kind.min == kind.max) return fmt::format("the integer {}", kind.min);
    return fmt::format("an integer, {} to {}", kind.min, kind.max);
  }
  std::string operator()(const ShareKind& kind) const {
    return fmt::format("a share such as 0.02, {} to {}", kind.min, kind.max);
  }
  std::string operator()(const BytesKind& kind) const {
    const std::string example = PrintBytes(std::clamp<int64_t>(int64_t{64} << 10, kind.min, kind.max));
    return fmt::format("a size such as {}, {} to {}", example, PrintBytes(kind.min), PrintBytes(kind.max));
  }
  std::string operator()(const DurationKind& kind) const {
    return fmt::format("a duration such as 500ms, 30s or 10m, {} to {}", PrintDuration(kind.min),
                       PrintDuration(kind.max));
  }
  std::string operator()(const ChoiceKind& kind) const {
    return fmt::format("one of {}", fmt::join(kind.choices, ", "));
  }
  std::string operator()(const StringKind& kind) const {
    return fmt::format("text without control characters, at most {} bytes", kind.bytes_max);
  }
  std::string operator()(const AddressKind& kind) const {
    return kind.may_be_off ? "an address HOST:PORT, or off" : "an address HOST:PORT";
  }
  std::string operator()(const TokensKind&) const { return "a list of {tenant, sha256, admin, instance}"; }
};

size_t EditDistance(const std::string_view a, const std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Field> Fields() { return Table(); }

const Field* FindField(const std::string_view path) {
  const auto found = std::ranges::find(Table(), path, &Field::path);
  return found == Table().end() ? nullptr : &*found;
}

std::string Nearest(const std::string_view word, const std::span<const std::string_view> candidates) {
  constexpr size_t kWordBytesMax = 128;
  if (word.size() > kWordBytesMax) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return std::string(best);
}

std::string NearestPath(const std::string_view path) {
  std::vector<std::string_view> paths;
  for (const Field& field : Table()) paths.push_back(field.path);
  return Nearest(path, paths);
}

StatusOr<ApiToken> MakeToken(const std::string_view tenant, const std::string_view sha256) {
  const auto is_name = [](const char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  const auto is_hex = [](const char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (tenant.empty() || tenant.size() > 64 || !std::ranges::all_of(tenant, is_name)) {
    return InvalidArgument("auth.tokens: tenant wants 1 to 64 letters, digits, '-', '_' or '.'", "auth.tokens");
  }
  if (sha256.size() != 64 || !std::ranges::all_of(sha256, is_hex)) {
    return InvalidArgument(
        "auth.tokens: sha256 wants 64 lower-case hex digits: the hash of the token, never the token "
        "(printf %s TOKEN | sha256sum)",
        "auth.tokens");
  }
  return ApiToken{.tenant = std::string(tenant), .sha256 = std::string(sha256)};
}

Status SetFromText(const Field& field, const std::string_view text, Config& config) {
  return std::visit(Setter{field, text, config}, field.kind);
}

std::string PrintValue(const Field& field, const Config& config, const bool mask_secrets) {
  Config copy = config;  // The accessors of the table want a mutable one.
  return std::visit(Printer{copy, mask_secrets}, field.kind);
}

std::string DescribeKind(const Field& field) { return std::visit(Describer{}, field.kind); }

StatusOr<HostPort> ParseAddress(const std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return InvalidArgument("an address is HOST:PORT");
  std::string_view host = address.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool has_colon = host.find(':') != std::string_view::npos;
  const bool plain = std::ranges::all_of(
      host, [](const unsigned char c) { return c > 0x20 && c < 0x7f && c != '/' && c != '[' && c != ']'; });
  if (bracketed != has_colon || !plain || host.size() > 253) return InvalidArgument("an address is HOST:PORT");
  int64_t port = 0;
  if (!ParseInt(address.substr(colon + 1), port) || port < 0 || port > 65535) {
    return InvalidArgument("a port is 0 to 65535");
  }
  return HostPort{.host = std::string(host), .port = static_cast<int>(port)};
}

bool IsLoopback(const std::string_view address) {
  const StatusOr<HostPort> parsed = ParseAddress(address);
  if (!parsed.ok()) return false;
  const std::string& host = parsed->host;
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8, written as four numbers: "127.evil.example" is a name.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos &&
         std::ranges::count(host, '.') == 3;
}

StatusOr<ReloadPlan> PlanReload(const Config& running, const Config& wanted) {
  ReloadPlan plan{.config = running};
  Config source = wanted;  // The accessors of the table want a mutable one.
  for (const Field& field : Table()) {
    if (PrintValue(field, running, /*mask_secrets=*/false) == PrintValue(field, wanted, /*mask_secrets=*/false)) {
      continue;
    }
    if (field.takes == Takes::kAtStart) {
      plan.needs_restart.push_back(field.path);
      continue;
    }
    std::visit([&](const auto& kind) { kind.member(plan.config) = kind.member(source); }, field.kind);
    plan.changed.push_back(field.path);
  }
  if (Status s = ValidateTogether(plan.config); !s.ok()) return s;
  return plan;
}

namespace {

Status ValidateRemoteTier(const Config::Cache::Tiers::Remote& remote) {
  const auto refused = [](const std::string& name, const std::string_view why) {
    const std::string path = "cache.tiers.remote." + name;
    return InvalidArgument(fmt::format("{}: {}", path, why), path);
  };
  if (remote.address.empty()) return OkStatus();
  const bool is_unix = remote.address.starts_with("unix:/");
  if (!is_unix && !ParseAddress(remote.address).ok()) return refused("address", "wants HOST:PORT or unix:/PATH");
  if (remote.hmac_secret_file.empty()) return refused("hmac_secret_file", "is required with an address");
  if (!remote.username.empty() && remote.password_file.empty()) return refused("username", "needs password_file");
  if (remote.tls && is_unix) return refused("tls", "is for addresses HOST:PORT");
  if (!remote.tls && !(remote.tls_ca + remote.tls_certificate + remote.tls_key).empty()) {
    return refused("tls", "must be true where tls_ca, tls_certificate or tls_key is given");
  }
  if (remote.tls_certificate.empty() != remote.tls_key.empty()) {
    return refused("tls_key", "give tls_certificate and tls_key, both or none");
  }
  if (!is_unix && !remote.tls && !IsLoopback(remote.address) && !remote.allow_insecure) {
    return refused("address", "is another machine: set tls: true, or allow_insecure: true");
  }
  return OkStatus();
}

// What other machines reach is closed to strangers and to listeners on the way, or says openly that it is not.
Status ValidateExposure(const Config& config) {
  const auto refused = [](const std::string& field, const std::string& address, const std::string& why) {
    return InvalidArgument(fmt::format("{}: '{}' can be reached from other machines{}", field, address, why), field);
  };
  const std::string& listen = config.server.listen;
  if (!IsLoopback(listen) && !config.server.allow_insecure) {
    const bool has_tls = !config.tls.certificate.empty();
    const bool knows_callers = !config.auth.tokens.empty() || !config.tls.client_ca.empty();
    const std::string openly = ", or say openly that the network is the fence: server.allow_insecure: true";
    if (!has_tls && !knows_callers) {
      return refused("server.listen", listen,
                     ": configure tls.certificate and tls.key, and auth.tokens or tls.client_ca" + openly);
    }
    if (!has_tls) {
      return refused("server.listen", listen,
                     " and auth.tokens would travel in plain text: configure tls.certificate and tls.key" + openly);
    }
    if (!knows_callers) {
      return refused("server.listen", listen,
                     " and everybody there may call: a certificate of the server keeps nobody out; configure "
                     "auth.tokens or tls.client_ca" +
                         openly);
    }
  }
  const std::string& ops = config.ops.listen;
  if (ops != "off" && !IsLoopback(ops) && !config.ops.allow_insecure) {
    return refused("ops.listen", ops,
                   ", without TLS and without tokens: listen on loopback, set `off`, or say openly that the network is "
                   "the fence: ops.allow_insecure: true");
  }
  return OkStatus();
}

}  // namespace

Status ValidateTogether(const Config& config) {
  if (config.tls.certificate.empty() != config.tls.key.empty()) {
    return InvalidArgument("tls.certificate and tls.key: give both or none", "tls.key");
  }
  if (!config.tls.client_ca.empty() && config.tls.certificate.empty()) {
    return InvalidArgument("tls.client_ca: needs tls.certificate and tls.key", "tls.client_ca");
  }
  if (Status s = ValidateExposure(config); !s.ok()) return s;
  if (config.engine.prefill_chunk_tokens > config.engine.batch_tokens) {
    return InvalidArgument(fmt::format("engine.prefill_chunk_tokens: {} exceeds engine.batch_tokens {}",
                                       config.engine.prefill_chunk_tokens, config.engine.batch_tokens),
                           "engine.prefill_chunk_tokens");
  }
  if (config.engine.running_max > config.engine.batch_tokens) {
    return InvalidArgument(fmt::format("engine.running_max: {} exceeds engine.batch_tokens {}: a step must hold one "
                                       "token of every running request",
                                       config.engine.running_max, config.engine.batch_tokens),
                           "engine.running_max");
  }
  if (Status s = ValidateRemoteTier(config.cache.tiers.remote); !s.ok()) return s;
  if (Status s = ValidateTransfer(config); !s.ok()) return s;
  std::set<std::string_view> hashes;
  for (const ApiToken& token : config.auth.tokens) {
    if (!hashes.insert(token.sha256).second) {
      return InvalidArgument(fmt::format("auth.tokens: tenant '{}' repeats the token of another entry", token.tenant),
                             "auth.tokens");
    }
  }
  return OkStatus();
}

}  // namespace invar::config
