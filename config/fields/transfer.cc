// Prefixes between instances.
#include <chrono>

#include "config/fields/sections.h"

namespace invar::config {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

std::vector<Field> TransferFields() {
  return {
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
       "The instances that prefixes may come from, and no others: `NAME=HOST:PORT`, separated by commas. "
       "`NAME=dns:HOST:PORT` is as many as HOST has addresses, which is looked up every 5 s: a headless service of "
       "Kubernetes, say. Each has health, load and link of its own, and with `choose: shortest` all are asked what "
       "they have."},
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
      {"transfer.verify",
       ChoiceKind{+[](Config& c) -> std::string& { return c.transfer.verify; }, {"here", "there", "drafted"}},
       "Where a request runs while its prefix is on its way: `here`: nowhere, it waits; `there`: on the full KV of the "
       "producer that it comes from, whose tokens are those of a run here, until it has come; `drafted`: alike, and a "
       "compressed view of the prefix (engine.speculation.compressor and kv_budget) comes first, on which this "
       "instance "
       "drafts what the producer verifies, so that it takes fewer steps there. For links that take long over a prefix; "
       "producers of equal weights alone."},
      {"transfer.codes_kept", BytesKind{+[](Config& c) -> int64_t& { return c.transfer.codes_kept; }, kMiB, kTiB},
       "Most bytes of codes that are kept once they went out, for whoever asks for the same prefix by the same profile "
       "again; beside engine.kv_budget."},
      {"transfer.name", StringKind{+[](Config& c) -> std::string& { return c.transfer.name; }, 64},
       "How consumers call this instance in their transfer.producers; given: its answers carry a hand-off in "
       "kv_transfer_params_json, which a gateway relays to a decode instance. Needs hmac_secret_file."},
      {"transfer.hmac_secret_file",
       StringKind{+[](Config& c) -> std::string& { return c.transfer.hmac_secret_file; }, kPathBytesMax},
       "File whose first line, 32 bytes at least, is the secret that hand-offs are signed with; the same for all "
       "instances; empty: hand-offs are refused where prefixes are fetched."},
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
       "room is run here, or refused. On their way out a tenant has its share (limits.tenant_share_percent), and what "
       "was computed and not put together yet comes on top, once more at most."},
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
  };
}

}  // namespace invar::config
