// The prefix cache and its tiers.
#include <chrono>

#include "config/cache_names.h"
#include "config/fields/sections.h"

namespace invar::config {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

std::vector<Field> CacheFields() {
  return {
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
       "A record that a tier has not stored by then is given up; at the end of the process it has "
       "drain.persist_timeout, where that is longer."},
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
  };
}

}  // namespace invar::config
