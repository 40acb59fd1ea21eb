// Config: everything a user may set. Plain structs; filled, checked, printed and documented through the one table in
// fields.cc. Immutable after loading; a reload makes another. A new field is one line here and one row there.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "config/cache_names.h"
#include "config/drafter_names.h"

namespace invar::config {

using Duration = std::chrono::milliseconds;

// An API token, known only by the SHA-256 of its text, and the tenant whose requests carry it.
struct ApiToken {
  std::string tenant;
  std::string sha256;     // 64 lower-case hex digits.
  bool admin = false;     // May see and flush what all tenants have.
  bool instance = false;  // Of another instance: may fetch prefixes of all tenants, and no more.
  bool operator==(const ApiToken&) const = default;
};

struct Config {
  int64_t version = 1;  // Of this schema.

  struct Model {
    std::string path;  // Folder in Hugging Face layout.
    std::string name;  // Empty: the folder's own name.
  } model;

  struct Server {
    std::string listen = "127.0.0.1:50051";
    bool allow_insecure = false;
    int64_t connections_max = 1024;
    int64_t connections_per_address_max = 256;
    Duration handshake_timeout{5000};
    int64_t concurrent_streams_max = 256;
    int64_t request_bytes_max = int64_t{16} << 20;
    int64_t resets_burst = 200;
    int64_t resets_per_second = 50;
  } server;

  struct Tls {
    std::string certificate;
    std::string key;
    std::string client_ca;
  } tls;

  struct Auth {
    std::vector<ApiToken> tokens;
    bool health_exempt = false;
  } auth;

  struct Ops {
    std::string listen = "127.0.0.1:9464";
    bool allow_insecure = false;
  } ops;

  struct Engine {
    std::string backend = "cpu";
    std::string isa = "auto";
    std::string activations = "bf16";
    int64_t threads = 0;
    bool pack_to_file = true;
    int64_t batch_tokens = 512;
    int64_t prefill_chunk_tokens = 512;
    int64_t running_max = 64;
    int64_t queue_max = 1024;
    int64_t kv_budget = int64_t{1} << 30;
    struct Speculation {
      std::string drafter{kDrafterNames.front()};
      int64_t draft_tokens_max = 64;
      bool mtp_head = true;
      std::string compressor = "k8v4";
      double kv_budget = 0.5;
      int64_t draft_memory = 0;
      struct SlowTier {
        std::string path;
        int64_t budget = int64_t{16} << 30;
        bool direct = false;
        int64_t staging = int64_t{64} << 20;
        bool synchronous = false;
        Duration gap{0};
      } slow_tier;
    } speculation;
    struct Approximate {
      bool allowed = true;
      std::string compressor = "centroid";
      double kv_budget = 0.5;
    } approximate;
  } engine;

  struct Cache {
    bool enabled = true;
    std::string placement{kPlacementNames.front()};
    int64_t planned_checkpoints_max = 8;
    std::string eviction{kEvictionNames.front()};
    double probation_share = 0.02;
    struct Tiers {
      Duration read_timeout{2'000};
      Duration write_timeout{30'000};
      int64_t queue_max = 4096;
      int64_t queue_bytes_max = int64_t{1} << 30;
      int64_t threads = 2;

      struct Ram {
        int64_t budget = 0;
      } ram;

      struct Disk {
        std::string path;
        int64_t budget = int64_t{16} << 30;
        bool direct = true;
      } disk;

      struct Remote {
        std::string address;
        std::string username;
        std::string password_file;
        std::string hmac_secret_file;
        std::string key_prefix = "invar";
        Duration ttl{86'400'000};
        bool tls = false;
        std::string tls_ca;
        std::string tls_certificate;
        std::string tls_key;
        bool allow_insecure = false;
      } remote;
    } tiers;
  } cache;

  struct Transfer {
    std::string role = "none";
    std::string mode = "exact";
    std::string producers;
    std::string profile;
    std::string point;
    std::string choose = "shortest";
    std::string verify = "here";
    int64_t codes_kept = int64_t{64} << 20;
    std::string name;
    std::string hmac_secret_file;
    int64_t tokens_min = 256;
    Duration timeout{30'000};
    Duration lease{3'000};
    int64_t bytes_max = int64_t{1} << 30;
    int64_t credit_bytes = int64_t{8} << 20;
    int64_t parallel = 4;
    std::string token_file;
    bool tls = false;
    std::string tls_ca;
    std::string tls_certificate;
    std::string tls_key;
    bool allow_insecure = false;
  } transfer;

  struct Limits {
    Duration request_timeout{600'000};
    int64_t open_request_bytes_max = int64_t{256} << 20;
    int64_t refused_request_bytes_max = int64_t{32} << 20;
    int64_t preparing_max = 4096;
    int64_t tenant_share_percent = 50;
    int64_t text_bytes_max = int64_t{4} << 20;
    int64_t stop_strings_max = 16;
    int64_t stop_string_bytes_max = 256;
    int64_t stop_token_ids_max = 256;
    int64_t logit_bias_max = 1024;
    int64_t allowed_token_ids_max = 65536;
    int64_t logprobs_max = 20;
    int64_t message_logprobs_max = 65536;
    int64_t chat_messages_max = 1024;
    int64_t template_options_max = 64;
    int64_t checkpoint_hints_max = 64;
    int64_t salt_bytes_max = 256;
    int64_t priority_max = 0;
    int64_t stream_buffer = int64_t{64} << 10;
    Duration slow_reader_timeout{60'000};
  } limits;

  struct Drain {
    Duration timeout{30'000};
    Duration persist_timeout{10'000};
  } drain;

  struct Health {
    Duration stall_timeout{60'000};
    Duration probe_period{5'000};
  } health;

  struct Metrics {
    bool vllm_aliases = true;
  } metrics;

  struct Log {
    std::string format = "json";
    bool requests = true;
    std::string level = "info";
  } log;
};

}  // namespace invar::config
