// The strict reader: every bad configuration gives one clear error that names place and field; good ones keep their
// precedence and survive a round trip.
#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "config/fields.h"

namespace invar::config {
namespace {

using testing::HasSubstr;

constexpr char kHash[] = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

struct BadFile {
  const char* name;
  std::string yaml;
  const char* wants;  // Part of the message.
};

void PrintTo(const BadFile& bad, std::ostream* out) { *out << bad.name; }

class BadConfig : public testing::TestWithParam<BadFile> {};

TEST_P(BadConfig, IsRefusedWithOneClearError) {
  const StatusOr<Loaded> loaded = LoadText(GetParam().yaml, "f.yaml");
  ASSERT_FALSE(loaded.ok()) << GetParam().yaml;
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(loaded.status().message(), HasSubstr(GetParam().wants));
  EXPECT_EQ(loaded.status().message().find('\n'), std::string::npos) << "one line";
}

std::string Tokens(const std::string& entry) { return "auth:\n  tokens:\n    - " + entry + "\n"; }

INSTANTIATE_TEST_SUITE_P(
    All, BadConfig,
    testing::Values(
        BadFile{"unknown_section", "servr:\n  listen: a:1\n", "f.yaml:1: unknown key 'servr'; did you mean 'server'?"},
        BadFile{"unknown_key", "server:\n  listne: a:1\n",
                "f.yaml:2: unknown key 'server.listne'; did you mean "
                "'server.listen'?"},
        BadFile{"unknown_key_not_near", "engine:\n  zzzzzzzzzzzzzzzzzz: 1\n",
                "unknown key 'engine.zzzzzzzzzzzzzzzzzz'"},
        BadFile{"dotted_unknown", "server.lisen: a:1\n", "unknown key 'server.lisen'"},
        BadFile{"unknown_placement", "cache:\n  placement: optimal\n",
                "cache.placement: wants one of optimal-dp, none, kv-only, end-only, balanced, block, logarithmic, "
                "logarithmic-end, sqrt, branch-on-demand, found 'optimal'"},
        BadFile{"unknown_eviction", "cache:\n  eviction: lru\n",
                "cache.eviction: wants one of duel, least-recently-used, node-demand, found 'lru'"},
        BadFile{"share_above_one", "cache:\n  probation_share: 1.5\n",
                "cache.probation_share: wants a share such as 0.02, 0 to 1, found '1.5'"},
        BadFile{"share_with_exponent", "cache:\n  probation_share: 2e-2\n", "cache.probation_share: wants a share"},
        BadFile{"share_without_digits", "cache:\n  probation_share: .\n", "cache.probation_share: wants a share"},
        BadFile{"share_of_nan", "cache:\n  probation_share: nan\n", "cache.probation_share: wants a share"},
        BadFile{"share_empty", "cache:\n  probation_share: ''\n", "cache.probation_share: wants a share"},
        BadFile{"negative_checkpoints", "cache:\n  planned_checkpoints_max: -1\n",
                "cache.planned_checkpoints_max: wants an integer, 0 to 1024, found '-1'"},
        BadFile{"key_twice", "log:\n  level: info\n  level: warn\n", "f.yaml:3: 'level' is given twice"},
        BadFile{"section_twice", "log:\n  level: info\nlog:\n  format: text\n", "f.yaml:3: 'log' is given twice"},
        BadFile{"list_at_top", "- a\n- b\n", "wants a section of keys"},
        BadFile{"text_at_top", "hello\n", "wants a section of keys"},
        BadFile{"section_is_text", "server: here\n", "server: wants a section of keys"},
        BadFile{"section_is_list", "server: [a]\n", "server: wants a section of keys"},
        BadFile{"section_is_empty", "server:\n", "server: wants a section of keys"},
        BadFile{"nested_unknown_key", "cache:\n  tiers:\n    disk:\n      paht: x\n",
                "f.yaml:4: unknown key 'cache.tiers.disk.paht'; did you mean 'cache.tiers.disk.path'?"},
        BadFile{"nested_unknown_section", "cache:\n  tears: {}\n", "f.yaml:2: unknown key 'cache.tears'"},
        BadFile{"nested_section_is_text", "cache:\n  tiers: here\n", "cache.tiers: wants a section of keys"},
        BadFile{"nested_key_twice", "cache:\n  tiers:\n    threads: 1\n    threads: 2\n", "'threads' is given twice"},
        BadFile{"producers_of_nobody", "transfer: {role: prefill, producers: 'a=h:1'}\n",
                "transfer.producers: are for the roles decode and both"},
        BadFile{"decode_without_producers", "transfer: {role: decode}\n", "need one at least"},
        BadFile{"producer_without_name", "transfer: {role: decode, producers: 'localhost:1'}\n",
                "wants NAME=HOST:PORT"},
        BadFile{"producer_twice", "transfer: {role: decode, producers: 'a=localhost:1, a=localhost:2'}\n",
                "stands there twice"},
        BadFile{"producer_of_dns_without_port", "transfer: {role: decode, producers: 'a=dns:localhost'}\n",
                "transfer.producers: 'localhost' is no HOST:PORT"},
        BadFile{"producer_of_dns_plain_beyond_loopback", "transfer: {role: decode, producers: 'a=dns:h:1'}\n",
                "h:1 is another machine"},
        BadFile{"producer_bad_address", "transfer: {role: decode, producers: 'a=localhost'}\n", "is no HOST:PORT"},
        BadFile{"producer_plain_beyond_loopback", "transfer: {role: decode, producers: 'a=h:1'}\n",
                "transfer.producers: h:1 is another machine: set transfer.tls: true"},
        BadFile{"transfer_verify_of_a_producer", "transfer: {role: prefill, verify: there}\n",
                "transfer.verify: all but here is for the roles decode and both"},
        BadFile{"transfer_drafted_without_drafts",
                "{engine: {speculation: {draft_tokens_max: 0}}, transfer: {role: decode, producers: 'a=localhost:1', "
                "verify: drafted}}\n",
                "transfer.verify: drafted needs engine.speculation.draft_tokens_max"},
        BadFile{"transfer_without_cache",
                "{cache: {enabled: false}, transfer: {role: decode, producers: 'a=localhost:1'}}\n",
                "cache.enabled must be true"},
        BadFile{"transfer_name_without_secret", "transfer: {role: prefill, name: p1}\n",
                "transfer.hmac_secret_file: is required"},
        BadFile{"transfer_name_of_a_consumer",
                "transfer: {role: decode, producers: 'a=localhost:1', name: p1, hmac_secret_file: f}\n",
                "transfer.name: is for the roles"},
        BadFile{"transfer_tls_files_without_tls", "transfer: {tls_ca: f}\n", "transfer.tls: must be true"},
        BadFile{"transfer_key_alone", "transfer: {tls: true, tls_key: f}\n", "both or none"},
        BadFile{"transfer_short_lease", "transfer: {lease: 100ms}\n", "transfer.lease"},
        BadFile{"transfer_unknown_role", "transfer: {role: prefil}\n", "transfer.role"},
        BadFile{"remote_without_secret", "cache: {tiers: {remote: {address: 'localhost:1'}}}\n",
                "cache.tiers.remote.hmac_secret_file: is required"},
        BadFile{"remote_bad_address", "cache: {tiers: {remote: {address: here, hmac_secret_file: f}}}\n",
                "wants HOST:PORT or unix:/PATH"},
        BadFile{"remote_plain_beyond_loopback", "cache: {tiers: {remote: {address: 'a:1', hmac_secret_file: f}}}\n",
                "cache.tiers.remote.address: a:1 is another machine: set cache.tiers.remote.tls: true"},
        BadFile{"remote_user_without_password",
                "cache: {tiers: {remote: {address: 'unix:/s', hmac_secret_file: f, username: u}}}\n",
                "cache.tiers.remote.username: needs password_file"},
        BadFile{"remote_tls_on_unix",
                "cache: {tiers: {remote: {address: 'unix:/s', hmac_secret_file: f, tls: true}}}\n",
                "is for addresses HOST:PORT"},
        BadFile{"remote_tls_files_without_tls",
                "cache: {tiers: {remote: {address: 'localhost:1', hmac_secret_file: f, tls_ca: c}}}\n",
                "must be true where tls_ca"},
        BadFile{"remote_key_alone",
                "cache: {tiers: {remote: {address: 'a:1', hmac_secret_file: f, tls: true, tls_key: k}}}\n",
                "both or none"},
        BadFile{"not_yaml", "server: [\n", "not YAML"}, BadFile{"tab_indent", "server:\n\tlisten: a:1\n", "not YAML"},
        BadFile{"two_documents", "version: 1\n---\nversion: 1\n", "one YAML document"},
        BadFile{"list_key", "? [a, b]\n: c\n", "a key must be plain text"},
        BadFile{"version_2", "version: 2\n", "version: wants the integer 1, found '2'"},
        BadFile{"version_text", "version: one\n", "version: wants the integer 1"},
        BadFile{"int_text", "engine:\n  threads: many\n", "engine.threads: wants an integer, 0 to 1024, found 'many'"},
        BadFile{"int_float", "engine:\n  threads: 1.5\n", "found '1.5'"},
        BadFile{"int_quoted", "engine:\n  threads: \"2\"\n", "found quoted text"},
        BadFile{"int_negative", "engine:\n  threads: -1\n", "found '-1'"},
        BadFile{"int_above", "engine:\n  threads: 1025\n", "found '1025'"},
        BadFile{"int_huge", "engine:\n  threads: 99999999999999999999\n", "engine.threads"},
        BadFile{"int_octal", "engine:\n  threads: 010\n", "found '010'"},
        BadFile{"int_hex", "engine:\n  threads: 0x10\n", "found '0x10'"},
        BadFile{"int_plus", "engine:\n  threads: +1\n", "found '+1'"},
        BadFile{"int_underscore", "engine:\n  batch_tokens: 1_000\n", "engine.batch_tokens"},
        BadFile{"int_null", "engine:\n  threads:\n", "engine.threads: wants an integer, 0 to 1024, found nothing"},
        BadFile{"int_list", "engine:\n  threads: [1]\n", "found a list"},
        BadFile{"int_map", "engine:\n  threads: {a: 1}\n", "found a section"},
        BadFile{"int_nan", "engine:\n  threads: .nan\n", "engine.threads"},
        BadFile{"int_bool", "engine:\n  threads: true\n", "engine.threads"},
        BadFile{"bool_yes", "metrics:\n  vllm_aliases: yes\n", "wants true or false, found 'yes'"},
        BadFile{"bool_one", "metrics:\n  vllm_aliases: 1\n", "wants true or false"},
        BadFile{"bool_case", "metrics:\n  vllm_aliases: True\n", "wants true or false"},
        BadFile{"bool_quoted", "metrics:\n  vllm_aliases: \"true\"\n", "found quoted text"},
        BadFile{"bytes_unit", "engine:\n  kv_budget: 1GB\n", "wants a size such as 1MiB"},
        BadFile{"bytes_space", "engine:\n  kv_budget: 1 GiB\n", "engine.kv_budget"},
        BadFile{"bytes_overflow", "engine:\n  kv_budget: 9999999999999TiB\n", "engine.kv_budget"},
        BadFile{"bytes_small", "engine:\n  kv_budget: 1KiB\n", "1MiB to 64TiB"},
        BadFile{"bytes_zero", "engine:\n  kv_budget: 0\n", "engine.kv_budget"},
        BadFile{"bytes_fraction", "engine:\n  kv_budget: 1.5GiB\n", "engine.kv_budget"},
        BadFile{"request_bytes_above", "server:\n  request_bytes_max: 2GiB\n", "server.request_bytes_max"},
        BadFile{"duration_no_unit", "drain:\n  timeout: 30\n", "wants a duration such as"},
        BadFile{"duration_unit", "drain:\n  timeout: 30sec\n", "found '30sec'"},
        BadFile{"duration_negative", "drain:\n  timeout: -1s\n", "drain.timeout"},
        BadFile{"duration_above", "drain:\n  timeout: 25h\n", "drain.timeout"},
        BadFile{"duration_zero", "limits:\n  request_timeout: 0s\n", "limits.request_timeout"},
        BadFile{"duration_inf", "drain:\n  timeout: .inf\n", "drain.timeout"},
        BadFile{"choice", "engine:\n  backend: gpu\n", "one of cpu, cuda, auto, reference, found 'gpu'"},
        BadFile{"choice_case", "log:\n  level: INFO\n", "one of trace, debug, info, warn, error"},
        BadFile{"choice_isa", "engine:\n  isa: sse9\n", "engine.isa"},
        BadFile{"choice_activations", "engine:\n  activations: fp16\n", "engine.activations"},
        BadFile{"address_no_port", "server:\n  listen: localhost\n", "an address HOST:PORT"},
        BadFile{"address_port_text", "server:\n  listen: localhost:http\n", "server.listen"},
        BadFile{"address_port_above", "server:\n  listen: 127.0.0.1:65536\n", "server.listen"},
        BadFile{"address_port_negative", "server:\n  listen: 127.0.0.1:-1\n", "server.listen"},
        BadFile{"address_no_host", "server:\n  listen: ':1'\n", "server.listen"},
        BadFile{"address_ipv6_bare", "server:\n  listen: '::1:50051'\n", "server.listen"},
        BadFile{"address_space", "server:\n  listen: 'a b:1'\n", "server.listen"},
        BadFile{"address_path", "server:\n  listen: 'unix:/tmp/a:1'\n", "server.listen"},
        BadFile{"address_off", "server:\n  listen: off\n", "server.listen"},
        BadFile{"open_without_guard", "server:\n  listen: 0.0.0.0:1\n", "can be reached from other machines"},
        BadFile{
            "open_with_tokens_in_plain_text",
            std::string("server:\n  listen: 0.0.0.0:1\n") + Tokens(std::string("{tenant: a, sha256: ") + kHash + "}"),
            "auth.tokens would travel in plain text: configure tls.certificate and tls.key"},
        BadFile{"open_with_a_server_certificate_alone",
                "server:\n  listen: 0.0.0.0:1\ntls:\n  certificate: a.pem\n  key: a.key\n",
                "configure auth.tokens or tls.client_ca"},
        BadFile{"open_ops", "ops:\n  listen: 0.0.0.0:1\n", "ops.allow_insecure: true"},
        BadFile{"open_ops_of_a_guarded_server", "server:\n  allow_insecure: true\nops:\n  listen: 0.0.0.0:1\n",
                "ops.listen: '0.0.0.0:1'"},
        BadFile{"open_ipv6", "server:\n  listen: '[::]:1'\n", "can be reached from other machines"},
        BadFile{"open_name_like_loopback", "server:\n  listen: 127.evil.example:1\n", "can be reached"},
        BadFile{"tls_key_missing", "tls:\n  certificate: a.pem\n", "give both or none"},
        BadFile{"tls_certificate_missing", "tls:\n  key: a.pem\n", "give both or none"},
        BadFile{"tls_ca_alone", "tls:\n  client_ca: a.pem\n", "tls.client_ca: needs tls.certificate"},
        BadFile{"path_control", "model:\n  path: \"a\\x01b\"\n", "without control characters"},
        BadFile{"path_nul", "model:\n  path: \"a\\0b\"\n", "without control characters"},
        BadFile{"path_long", "model:\n  path: " + std::string(5000, 'a') + "\n", "at most 4096 bytes"},
        BadFile{"tokens_text", "auth:\n  tokens: secret\n", "a list of {tenant, sha256, admin, instance}"},
        BadFile{"tokens_plain", Tokens("secret"), "wants a section of keys"},
        BadFile{"tokens_unknown_key", Tokens("{tenant: a, sha256: b, token: c}"), "unknown key 'auth.tokens.token'"},
        BadFile{"tokens_near_key", Tokens("{tenat: a}"), "did you mean 'tenant'?"},
        BadFile{"tokens_admin_word", Tokens(std::string("{tenant: a, admin: yes, sha256: ") + kHash + "}"),
                "auth.tokens.admin: wants true or false, found 'yes'"},
        BadFile{"tokens_not_hash", Tokens("{tenant: a, sha256: secret}"), "sha256 wants 64 lower-case hex digits"},
        BadFile{"tokens_no_tenant", Tokens(std::string("{sha256: ") + kHash + "}"), "tenant wants 1 to 64"},
        BadFile{"tokens_bad_tenant", Tokens(std::string("{tenant: 'a b', sha256: ") + kHash + "}"), "tenant wants"},
        BadFile{
            "tokens_twice",
            "auth:\n  tokens: [{tenant: a, sha256: " + std::string(kHash) + "}, {tenant: b, sha256: " + kHash + "}]\n",
            "repeats the token"},
        BadFile{"chunk_above_batch", "engine:\n  batch_tokens: 100\n  running_max: 10\n  prefill_chunk_tokens: 200\n",
                "exceeds engine.batch_tokens 100"},
        BadFile{"running_above_batch", "engine:\n  batch_tokens: 10\n  prefill_chunk_tokens: 10\n  running_max: 20\n",
                "exceeds engine.batch_tokens 10"}),
    [](const auto& info) { return std::string(info.param.name); });

std::string WriteFile(const std::string& yaml) {
  const std::string path = testing::TempDir() + "/invar_config_test.yaml";
  std::ofstream(path) << yaml;
  return path;
}

TEST(NestedSections, AreReadFromFileEnvironmentAndCommandLine) {
  const StatusOr<Loaded> file = LoadText("cache:\n  tiers:\n    threads: 3\n    disk:\n      path: /a\n", "f.yaml");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->config.cache.tiers.threads, 3);
  EXPECT_EQ(file->config.cache.tiers.disk.path, "/a");
  EXPECT_EQ(file->origins.at("cache.tiers.disk.path"), "f.yaml:5");
  const StatusOr<Loaded> other = Load({.file = {},
                                       .environment = {{"INVAR_CACHE__TIERS__DISK__PATH", "/b"}},
                                       .sets = {"cache.tiers.remote.ttl=2h"},
                                       .model = {}});
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  EXPECT_EQ(other->config.cache.tiers.disk.path, "/b");
  EXPECT_EQ(other->config.cache.tiers.remote.ttl, std::chrono::hours(2));
}

TEST(Load, PrefersSetOverEnvironmentOverFileOverDefault) {
  const std::string file =
      WriteFile("engine: {threads: 2, queue_max: 2, running_max: 2}\nmodel: {path: from-file}\nlog: {level: debug}\n");
  const StatusOr<Loaded> loaded = Load({.file = file,
                                        .environment = {{"INVAR_ENGINE__THREADS", "3"},
                                                        {"INVAR_ENGINE__QUEUE_MAX", "3"},
                                                        {"INVAR_MODEL__PATH", "from-environment"},
                                                        {"INVAR_TOKEN", "not a field"}},
                                        .sets = {"engine.threads=4", "engine.threads=5"},
                                        .model = "from-flag"});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.engine.threads, 5);
  EXPECT_EQ(loaded->config.engine.queue_max, 3);
  EXPECT_EQ(loaded->config.engine.running_max, 2);
  EXPECT_EQ(loaded->config.model.path, "from-flag");
  EXPECT_EQ(loaded->config.log.level, "debug");
  EXPECT_EQ(loaded->config.engine.batch_tokens, 512);
  EXPECT_EQ(loaded->origins.at("engine.threads"), "--set");
  EXPECT_EQ(loaded->origins.at("engine.queue_max"), "INVAR_ENGINE__QUEUE_MAX");
  EXPECT_EQ(loaded->origins.at("engine.running_max"), file + ":1");
  EXPECT_FALSE(loaded->origins.contains("engine.batch_tokens"));
}

TEST(Load, RefusesUnknownSetsAndVariablesByName) {
  const StatusOr<Loaded> set = Load({.file = {}, .environment = {}, .sets = {"server.lisen=a:1"}, .model = {}});
  ASSERT_FALSE(set.ok());
  EXPECT_THAT(set.status().message(), HasSubstr("did you mean 'server.listen'?"));
  EXPECT_FALSE(Load({.file = {}, .environment = {}, .sets = {"server.listen"}, .model = {}}).ok());
  const StatusOr<Loaded> variable =
      Load({.file = {}, .environment = {{"INVAR_SERVER__LISEN", "a:1"}}, .sets = {}, .model = {}});
  ASSERT_FALSE(variable.ok());
  EXPECT_THAT(variable.status().message(), HasSubstr("INVAR_SERVER__LISEN"));
}

TEST(Load, NamesAMissingFile) {
  const StatusOr<Loaded> loaded = Load({.file = "/nonexistent/invar.yaml", .environment = {}, .sets = {}, .model = {}});
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.status().message(), HasSubstr("/nonexistent/invar.yaml"));
}

TEST(Load, TakesAnEmptyFile) {
  EXPECT_TRUE(LoadText("", "f.yaml").ok());
  EXPECT_TRUE(LoadText("# nothing\n", "f.yaml").ok());
}

TEST(Load, ReadsUnitsAndTokensAsWritten) {
  const StatusOr<Loaded> loaded = LoadText(std::string("engine: {kv_budget: 3MiB}\nlimits: {request_timeout: 90s}\n"
                                                       "cache: {placement: sqrt, eviction: node-demand, "
                                                       "probation_share: 0.125, planned_checkpoints_max: 3}\n"
                                                       "auth: {tokens: [{tenant: a, sha256: ") +
                                               kHash + "}]}\n",
                                           "f.yaml");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.engine.kv_budget, 3 << 20);
  EXPECT_EQ(loaded->config.limits.request_timeout, std::chrono::seconds(90));
  EXPECT_EQ(loaded->config.auth.tokens.at(0).tenant, "a");
  EXPECT_EQ(loaded->config.cache.placement, "sqrt");
  EXPECT_EQ(loaded->config.cache.eviction, "node-demand");
  EXPECT_EQ(loaded->config.cache.probation_share, 0.125);
  EXPECT_EQ(loaded->config.cache.planned_checkpoints_max, 3);
  EXPECT_FALSE(loaded->config.auth.tokens.at(0).admin);
}

TEST(Load, ReadsWhichTokensAreAdmins) {
  const std::string other(64, 'b');
  const StatusOr<Loaded> file = LoadText(std::string("auth: {tokens: [{tenant: a, sha256: ") + kHash +
                                             ", admin: true}, {tenant: b, admin: false, sha256: " + other + "}]}\n",
                                         "f.yaml");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const StatusOr<Loaded> set = Load({.file = {},
                                     .environment = {},
                                     .sets = {std::string("auth.tokens=a:") + kHash + ":admin,b:" + other},
                                     .model = {}});
  ASSERT_TRUE(set.ok()) << set.status().message();
  for (const Loaded* loaded : {&*file, &*set}) {
    EXPECT_TRUE(loaded->config.auth.tokens.at(0).admin);
    EXPECT_FALSE(loaded->config.auth.tokens.at(1).admin);
    // As it is printed, it is read again.
    const StatusOr<Loaded> again =
        LoadText("auth: {tokens: " + PrintValue(*FindField("auth.tokens"), loaded->config, false) + "}\n", "f.yaml");
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->config.auth.tokens, loaded->config.auth.tokens);
  }
}

TEST(Load, OpensPortsThatAreGuardedOrSaidToBeOpen) {
  const std::string open = "server: {listen: '0.0.0.0:1'}\n";
  const std::string tls = "tls: {certificate: a.pem, key: a.key";
  const std::string tokens = std::string("auth: {tokens: [{tenant: a, sha256: ") + kHash + "}]}\n";
  for (const std::string& text :
       {open + tls + "}\n" + tokens, open + tls + ", client_ca: ca.pem}\n",
        std::string("server: {listen: '0.0.0.0:1', allow_insecure: true}\n"),
        std::string("ops: {listen: '0.0.0.0:1', allow_insecure: true}\n"), std::string("ops: {listen: off}\n")}) {
    const StatusOr<Loaded> loaded = LoadText(text, "f.yaml");
    EXPECT_TRUE(loaded.ok()) << text << loaded.status().message();
  }
}

TEST(Print, DefaultConfigLoadsToTheDefaults) {
  const StatusOr<Loaded> loaded = LoadText(PrintDefaultConfig(), "default.yaml");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const Config defaults;
  for (const Field& field : Fields()) {
    EXPECT_EQ(PrintValue(field, loaded->config, false), PrintValue(field, defaults, false)) << field.path;
    EXPECT_TRUE(loaded->origins.contains(std::string(field.path))) << field.path << " is not printed";
  }
}

TEST(Print, HidesTokenHashesAndShowsOrigins) {
  const StatusOr<Loaded> loaded = Load({.file = {},
                                        .environment = {},
                                        .sets = {std::string("auth.tokens=team-a:") + kHash, "log.level=warn"},
                                        .model = {}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const std::string printed = PrintConfig(*loaded);
  EXPECT_EQ(printed.find(kHash), std::string::npos);
  EXPECT_THAT(printed, HasSubstr("team-a"));
  EXPECT_THAT(printed, HasSubstr("level: warn  # --set"));
  EXPECT_THAT(printed, HasSubstr("format: json  # default"));
}

TEST(Print, DocsInTheTreeAreThoseOfTheTable) {
  std::ifstream file(std::string(INVAR_SOURCE_DIR) + "/docs/CONFIG.md");
  const std::string docs((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(docs, PrintDocs()) << "run: invar config --docs > docs/CONFIG.md";
}

TEST(Reload, TakesWhatMayChangeAndNamesTheRest) {
  Config running;
  running.auth.tokens = {{.tenant = "a", .sha256 = std::string(64, 'a')}};
  Config wanted = running;
  wanted.auth.tokens[0].sha256 = std::string(64, 'b');  // Same when printed with hashes hidden.
  wanted.limits.priority_max = 7;
  wanted.log.level = "debug";
  wanted.engine.threads = 3;
  wanted.server.listen = "127.0.0.1:1";
  const StatusOr<ReloadPlan> plan = PlanReload(running, wanted);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->changed, testing::UnorderedElementsAre("auth.tokens", "limits.priority_max", "log.level"));
  EXPECT_THAT(plan->needs_restart, testing::UnorderedElementsAre("engine.threads", "server.listen"));
  EXPECT_EQ(plan->config.auth.tokens, wanted.auth.tokens);
  EXPECT_EQ(plan->config.limits.priority_max, 7);
  EXPECT_EQ(plan->config.engine.threads, running.engine.threads);
  EXPECT_EQ(plan->config.server.listen, running.server.listen);
}

TEST(Reload, JudgesWhatWouldBeInForceNotWhatIsWritten) {
  Config running;
  running.server.listen = "0.0.0.0:1";
  running.tls = {.certificate = "a.pem", .key = "a.key", .client_ca = ""};
  running.auth.tokens = {{.tenant = "a", .sha256 = std::string(64, 'a')}};
  // Alone this is a valid configuration; the port that stays open to others would lose its tokens.
  const Config wanted;
  const StatusOr<ReloadPlan> plan = PlanReload(running, wanted);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().field(), "server.listen");
}

TEST(Fields, EveryFieldHasASentenceAndAPathOfItsOwn) {
  std::set<std::string_view> paths;
  for (const Field& field : Fields()) {
    EXPECT_TRUE(paths.insert(field.path).second) << field.path;
    EXPECT_TRUE(field.help.ends_with('.')) << field.path;
  }
}

TEST(IsLoopback, KnowsNamesFromNumbers) {
  EXPECT_TRUE(IsLoopback("127.0.0.1:1"));
  EXPECT_TRUE(IsLoopback("127.9.9.9:1"));
  EXPECT_TRUE(IsLoopback("localhost:1"));
  EXPECT_TRUE(IsLoopback("[::1]:1"));
  EXPECT_FALSE(IsLoopback("127.0.0.evil:1"));
  EXPECT_FALSE(IsLoopback("0.0.0.0:1"));
  EXPECT_FALSE(IsLoopback("[::]:1"));
}

}  // namespace
}  // namespace invar::config
