// AdminService and the page of the cache, through a real daemon: numbers that add up, flushes that are felt and stay
// within their tenant, plans that name the places where checkpoints then lie, and nothing for callers without a right.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/fingerprint.h"
#include "config/fields.h"
#include "invar/v1/admin.grpc.pb.h"
#include "server/wire/translate_admin.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/support/loopback.h"

namespace invar::e2e {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;
using testing::Not;

constexpr char kAdmin[] = "admin-token";
constexpr char kRed[] = "red-token";
constexpr char kBlue[] = "blue-token";

config::Config TokenConfig() {
  config::Config config = TinyConfig();
  config.auth.tokens = {{.tenant = "ops", .sha256 = ToHex(Sha256(kAdmin)), .admin = true},
                        {.tenant = "red", .sha256 = ToHex(Sha256(kRed))},
                        {.tenant = "blue", .sha256 = ToHex(Sha256(kBlue))}};
  return config;
}

std::vector<int32_t> Ids(const uint32_t seed, const int32_t count) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
  return ids;
}

// An HTTP answer as it came: these tests look at headers and send odd ones.
struct Page {
  int status = 0;
  std::string headers;
  std::string body;
};
Page Get(const std::string& address, const std::string& path, const std::vector<std::string>& headers = {}) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_TRUE(ConnectLoopback(fd, config::ParseAddress(address)->port));
  std::string request = "GET " + path + " HTTP/1.1\r\n";
  const bool names_host = std::ranges::any_of(headers, [](const auto& header) { return header.starts_with("Host:"); });
  if (!names_host) request += "Host: " + address + "\r\n";
  for (const std::string& header : headers) request += header + "\r\n";
  request += "\r\n";
  EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  close(fd);
  const size_t end = text.find("\r\n\r\n");
  if (text.size() < 12 || end == std::string::npos) return {};
  return {.status = std::stoi(text.substr(9, 3)), .headers = text.substr(0, end), .body = text.substr(end + 4)};
}
std::string Bearer(const std::string& token) { return "Authorization: Bearer " + token; }

// A daemon and its admin calls. Answers must be whole or an error.
class Rig {
 public:
  explicit Rig(const config::Config& config, server::ModelLoader loader = FingerprintLoader(nullptr),
               const Clock* clock = nullptr)
      : daemon_(config, std::move(loader), clock),
        stub_(daemon_.NewStub()),
        admin_(v1::AdminService::NewStub(daemon_.NewChannel())) {}

  // Cached tokens of one request.
  int32_t Run(const std::vector<int32_t>& ids, const std::string& token = {}, const std::string& salt = {},
              const std::vector<int32_t>& hints = {}) {
    v1::GenerateRequest request = TokensRequest(ids, 2);
    request.mutable_cache()->set_salt(salt);
    for (const int32_t hint : hints) request.mutable_cache()->add_checkpoint_hints(hint);
    const Outcome outcome = Collect(*stub_, request, std::chrono::seconds(60), token);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    return outcome.finished.usage().cached_tokens();
  }
  grpc::Status Statistics(v1::GetCacheStatisticsResponse& response, const std::string& token = {},
                          const std::string& tenant = {}, const int32_t nodes_max = 0) {
    v1::GetCacheStatisticsRequest request;
    request.set_tenant(tenant);
    request.set_nodes_max(nodes_max);
    return Call(token, [&](grpc::ClientContext* c) { return admin_->GetCacheStatistics(c, request, &response); });
  }
  grpc::Status Flush(const v1::FlushCacheRequest& request, const std::string& token = {}) {
    return Call(token, [&](grpc::ClientContext* c) { return admin_->FlushCache(c, request, &flushed_); });
  }
  grpc::Status Explain(const v1::ExplainPlanRequest& request, v1::ExplainPlanResponse& response,
                       const std::string& token = {}) {
    return Call(token, [&](grpc::ClientContext* c) { return admin_->ExplainPlan(c, request, &response); });
  }
  v1::ExplainPlanResponse Explained(const std::vector<int32_t>& ids, const std::vector<int32_t>& hints = {}) {
    v1::ExplainPlanRequest request;
    for (const int32_t id : ids) request.mutable_tokens()->add_ids(id);
    for (const int32_t hint : hints) request.mutable_cache()->add_checkpoint_hints(hint);
    // Priors are renewed on a thread of the cache: the answer that counts is one no newer prior is about to change.
    for (;;) {
      v1::ExplainPlanResponse response;
      const grpc::Status status = Explain(request, response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      if (!status.ok() || response.explanation().find("being worked out anew") == std::string::npos) return response;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // The first page after a snapshot was made.
  e2e::Page Page(const std::vector<std::string>& headers = {}) {
    for (int i = 0; i < 1000; ++i) {
      e2e::Page page = Get(ops(), "/cache", headers);
      if (page.status != 200 || page.body.find("is being made") == std::string::npos) return page;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no snapshot came";
    return {};
  }
  std::string ops() { return daemon_.daemon().ops_address(); }
  const v1::FlushCacheResponse& flushed() const { return flushed_; }
  RunningDaemon& daemon() { return daemon_; }
  v1::AdminService::Stub& admin() { return *admin_; }

 private:
  template <typename F>
  grpc::Status Call(const std::string& token, const F& call) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    return call(&context);
  }

  RunningDaemon daemon_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  v1::FlushCacheResponse flushed_;
};

v1::FlushCacheRequest FlushOf(const std::string& tenant, const std::optional<std::string>& salt = std::nullopt) {
  v1::FlushCacheRequest request;
  request.set_tenant(tenant);
  if (salt.has_value()) request.set_salt(*salt);
  return request;
}

int64_t Held(const google::protobuf::RepeatedPtrField<v1::CheckpointCount>& counts) {
  int64_t sum = 0;
  for (const v1::CheckpointCount& count : counts) sum += count.held();
  return sum;
}

// --- Statistics ---

TEST(AdminStatistics, AddUpWithEachOtherAndWithResponsesAndMetrics) {
  Rig rig(TokenConfig());
  int64_t prompt = 0, cached = 0;
  for (int i = 0; i < 12; ++i) {
    const std::vector<int32_t> ids = Ids(i % 4, 200 + 10 * i);
    cached += rig.Run(ids, i % 2 == 0 ? kRed : kBlue, i % 3 == 0 ? "s" : "");
    prompt += static_cast<int64_t>(ids.size());
  }
  v1::GetCacheStatisticsResponse all;
  ASSERT_TRUE(rig.Statistics(all, kAdmin, {}, 1024).ok());
  const v1::CacheTotals& totals = all.totals();
  EXPECT_EQ(totals.lookups(), 12);
  EXPECT_EQ(totals.lookup_tokens(), prompt);
  EXPECT_EQ(totals.state_match_tokens(), cached);
  EXPECT_DOUBLE_EQ(totals.hit_rate(), static_cast<double>(cached) / static_cast<double>(prompt));
  EXPECT_EQ(Held(totals.checkpoint_counts()), totals.checkpoints());
  EXPECT_GT(totals.checkpoints(), 0);
  int64_t made = 0;
  for (const v1::CheckpointCount& count : totals.checkpoint_counts()) made += count.made() - count.evicted();
  EXPECT_EQ(made, totals.checkpoints()) << "nothing was flushed";
  EXPECT_LE(totals.live_bytes() + totals.cached_bytes(), totals.budget_bytes());
  EXPECT_THAT(totals.eviction_order(), testing::AnyOf("node-demand", "least-recently-used"));
  EXPECT_EQ(totals.plans(), 12);
  // Tenants add up to the whole; nodes too, where all are shown.
  ASSERT_EQ(all.tenants_size(), 2);
  EXPECT_EQ(all.tenants(0).tenant(), "blue");
  EXPECT_EQ(all.tenants(1).tenant(), "red");
  EXPECT_EQ(all.tenants(0).nodes() + all.tenants(1).nodes(), totals.nodes());
  EXPECT_EQ(Held(all.tenants(0).checkpoint_counts()) + Held(all.tenants(1).checkpoint_counts()), totals.checkpoints());
  EXPECT_EQ(all.nodes_size(), totals.nodes());
  int64_t tokens = 0;
  for (const v1::CacheNode& node : all.nodes()) {
    tokens += node.end() - node.begin();
    EXPECT_EQ(node.begin(), node.parent() < 0 ? 0 : all.nodes(node.parent()).end());
  }
  EXPECT_EQ(tokens, all.tenants(0).kv_tokens() + all.tenants(1).kv_tokens());
  ASSERT_TRUE(rig.daemon().BecomesIdle());
  const std::string metrics = rig.daemon().daemon().MetricsText();
  EXPECT_EQ(MetricSum(metrics, "invar_cached_bytes"), totals.cached_bytes());
  EXPECT_EQ(MetricSum(metrics, "invar_plans_total"), totals.plans());
  EXPECT_EQ(MetricSum(metrics, "invar_checkpoint_price_tokens"), totals.checkpoint_price_tokens());
  EXPECT_EQ(MetricSum(metrics, "invar_eviction_order"), 1) << "one of them is followed";
  EXPECT_EQ(MetricSum(metrics, "invar_eviction_order", totals.eviction_order()), 1);
  EXPECT_GT(MetricSum(metrics, "invar_rpcs_total", "GetCacheStatistics"), 0);
}

TEST(AdminStatistics, ATenantSeesItselfAlone) {
  Rig rig(TokenConfig());
  rig.Run(Ids(1, 300), kRed);
  rig.Run(Ids(2, 500), kBlue);
  v1::GetCacheStatisticsResponse red;
  ASSERT_TRUE(rig.Statistics(red, kRed, {}, 100).ok());
  EXPECT_FALSE(red.has_totals());
  ASSERT_EQ(red.tenants_size(), 1);
  EXPECT_EQ(red.tenants(0).tenant(), "red");
  EXPECT_GE(red.nodes_size(), 1);
  for (const v1::CacheNode& node : red.nodes()) EXPECT_LE(node.end(), 302);
  EXPECT_THAT(red.ShortDebugString(), Not(HasSubstr("blue")));
  v1::GetCacheStatisticsResponse other;
  const grpc::Status status = rig.Statistics(other, kRed, "blue");
  EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("speaks for tenant 'red', not for 'blue'"));
  EXPECT_EQ(other.ByteSizeLong(), 0u);
  EXPECT_EQ(rig.Statistics(other, {}, {}).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(rig.Statistics(other, "wrong", {}).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(rig.Statistics(other, kAdmin, {}, 1025).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(rig.Statistics(other, kAdmin, {}, -1).error_code(), StatusCode::INVALID_ARGUMENT);
}

// Of the heaviest nodes of all, none would be of a small tenant beside a large one, and their count and numbers would
// say how large that is.
TEST(AdminStatistics, ATenantSeesOfItselfTheSameBesideAnyOther) {
  const auto of_red = [](const int others) {
    Rig rig(TokenConfig());
    for (int i = 0; i < others; ++i) rig.Run(Ids(100 + i, 100), kBlue, i % 2 == 0 ? "" : "s");
    for (int i = 0; i < 3; ++i) rig.Run(Ids(i, 40), kRed, i % 2 == 0 ? "" : "s");
    v1::GetCacheStatisticsResponse all;
    EXPECT_TRUE(rig.Statistics(all, kAdmin, {}, server::kSnapshotNodesMax).ok());
    EXPECT_EQ(all.nodes_size() == server::kSnapshotNodesMax, others > 0) << "no room for the small ones";
    v1::GetCacheStatisticsResponse red;
    EXPECT_TRUE(rig.Statistics(red, kRed, {}, server::kSnapshotNodesMax).ok());
    EXPECT_EQ(red.nodes_size(), red.tenants(0).nodes());
    std::string shape;
    for (const v1::CacheNode& node : red.nodes()) {
      shape += fmt::format("{} #{} [{}, {})\n", node.tenant(), node.tree(), node.begin(), node.end());
    }
    return shape;
  };
  const std::string alone = of_red(0);
  EXPECT_THAT(alone, HasSubstr("0 #2 ["));
  EXPECT_EQ(of_red(600), alone);
}

TEST(AdminStatistics, AreMadeOnceASecondHoweverManyAsk) {
  HandClock clock;
  Rig rig(TinyConfig(), FingerprintLoader(nullptr), &clock);
  v1::GetCacheStatisticsResponse response;
  ASSERT_TRUE(rig.Statistics(response).ok());
  EXPECT_EQ(response.totals().lookups(), 0);
  rig.Run(Ids(1, 100));
  ASSERT_TRUE(rig.Statistics(response).ok());
  EXPECT_EQ(response.totals().lookups(), 0) << "the same second";
  clock.Advance(std::chrono::nanoseconds(server::CacheView::kAgeMax));
  ASSERT_TRUE(rig.Statistics(response).ok());
  EXPECT_EQ(response.totals().lookups(), 1);
  EXPECT_EQ(response.age_seconds(), 0);
  // A flush is seen at once.
  ASSERT_TRUE(rig.Flush({}).ok());
  ASSERT_TRUE(rig.Statistics(response).ok());
  EXPECT_EQ(response.totals().cached_bytes(), 0);
}

// --- Flush ---

TEST(AdminFlush, MakesTheNextRequestColdAndLeavesOtherTenants) {
  Rig rig(TokenConfig());
  const std::vector<int32_t> ids = Ids(1, 200);
  const auto warm = [&](const std::string& token, const std::string& salt) {
    rig.Run(ids, token, salt);
    EXPECT_GT(rig.Run(ids, token, salt), 0);
  };
  for (const char* salt : {"", "a", "b"}) {
    warm(kRed, salt);
    warm(kBlue, salt);
  }
  // A tenant's own: one salt, then all of them.
  ASSERT_TRUE(rig.Flush(FlushOf("", "a"), kRed).ok());
  EXPECT_GT(rig.flushed().freed_bytes(), 0);
  EXPECT_EQ(rig.Run(ids, kRed, "a"), 0);
  EXPECT_GT(rig.Run(ids, kRed, "b"), 0);
  EXPECT_GT(rig.Run(ids, kRed, ""), 0);
  ASSERT_TRUE(rig.Flush(FlushOf("", ""), kRed).ok());
  EXPECT_EQ(rig.Run(ids, kRed, ""), 0);
  EXPECT_GT(rig.Run(ids, kRed, "b"), 0);
  ASSERT_TRUE(rig.Flush(FlushOf("red"), kRed).ok());
  for (const char* salt : {"", "a", "b"}) {
    EXPECT_EQ(rig.Run(ids, kRed, salt), 0) << salt;
    EXPECT_GT(rig.Run(ids, kBlue, salt), 0) << salt;
  }
  // Not of others; an admin may, and all.
  EXPECT_EQ(rig.Flush(FlushOf("blue"), kRed).error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_GT(rig.Run(ids, kBlue, "a"), 0);
  EXPECT_EQ(rig.Flush(FlushOf("", "a"), kAdmin).error_code(), StatusCode::INVALID_ARGUMENT) << "whose salt?";
  ASSERT_TRUE(rig.Flush(FlushOf("blue"), kAdmin).ok());
  for (const char* salt : {"", "a", "b"}) EXPECT_EQ(rig.Run(ids, kBlue, salt), 0) << salt;
  EXPECT_GT(rig.Run(ids, kRed, "a"), 0);
  ASSERT_TRUE(rig.Flush({}, kAdmin).ok());
  EXPECT_EQ(rig.Run(ids, kRed, "a"), 0);
  EXPECT_EQ(rig.Flush({}).error_code(), StatusCode::UNAUTHENTICATED);
}

TEST(AdminFlush, TakesPartsApart) {
  Rig rig(TinyConfig());
  const std::vector<int32_t> ids = Ids(1, 200);
  v1::FlushCacheRequest request;
  for (const v1::FlushCacheRequest::Part part : {v1::FlushCacheRequest::STATES, v1::FlushCacheRequest::KV}) {
    rig.Run(ids);
    EXPECT_GT(rig.Run(ids), 0);
    request.set_part(part);
    ASSERT_TRUE(rig.Flush(request).ok());
    EXPECT_EQ(rig.flushed().freed_checkpoints() > 0, part == v1::FlushCacheRequest::STATES);
    EXPECT_GT(rig.flushed().freed_bytes(), 0);
    EXPECT_EQ(rig.Run(ids), 0);
  }
  request.set_part(static_cast<v1::FlushCacheRequest::Part>(17));
  EXPECT_EQ(rig.Flush(request).error_code(), StatusCode::INVALID_ARGUMENT);
  // Without tokens there is one tenant, whose salts can be named.
  rig.Run(ids, {}, "s");
  ASSERT_TRUE(rig.Flush(FlushOf("", "s")).ok());
  EXPECT_EQ(rig.Run(ids, {}, "s"), 0);
}

// --- Plans ---

// Where checkpoints lie along a prefix, by asking again.
std::vector<int32_t> There(const v1::ExplainPlanResponse& response) {
  std::vector<int32_t> at;
  for (const auto& checkpoint : response.there()) at.push_back(checkpoint.at());
  return at;
}
std::vector<int32_t> Placed(const v1::ExplainPlanResponse& response) {
  std::vector<int32_t> at;
  for (const auto& decision : response.decisions()) {
    if (decision.verdict() == v1::ExplainPlanResponse::Decision::PLACED) at.push_back(decision.at());
  }
  std::sort(at.begin(), at.end());
  return at;
}

TEST(AdminExplain, NamesThePlacesWhereTheDaemonThenPutsCheckpoints) {
  Rig rig(TinyConfig());
  // Documents that are come back to at about two thirds.
  std::mt19937 random(3);
  v1::ExplainPlanResponse plan;
  for (int document = 1; document <= 40; ++document) {
    const std::vector<int32_t> first = Ids(document, 1000);
    plan = rig.Explained(first, {100});
    EXPECT_EQ(plan.prompt_tokens(), 1000);
    EXPECT_EQ(plan.kv_match_tokens(), 0);
    EXPECT_THAT(Placed(plan), testing::Contains(100));
    rig.Run(first, {}, {}, {100});
    EXPECT_EQ(There(rig.Explained(first)), Placed(plan)) << "document " << document;
    for (int follow = 0; follow < 2; ++follow) {
      std::vector<int32_t> next(first.begin(), first.begin() + 660 + random() % 80);
      const std::vector<int32_t> tail = Ids(100'000 + 10 * document + follow, 200);
      next.insert(next.end(), tail.begin(), tail.end());
      rig.Run(next);
    }
  }
  EXPECT_EQ(plan.basis(), v1::ExplainPlanResponse::LEARNED) << plan.explanation();
  EXPECT_THAT(Placed(plan), testing::Contains(testing::AllOf(testing::Ge(600), testing::Le(740))));
  EXPECT_THAT(plan.explanation(), HasSubstr("later requests of such a prefix are expected"));
  EXPECT_GT(plan.histogram_size(), 0);
  EXPECT_LT(plan.cost_tokens(), plan.cost_without_tokens());
  double own = 0;
  for (const auto& other : plan.alternatives()) own = other.policy() == "optimal-dp" ? other.total_tokens() : own;
  for (const auto& other : plan.alternatives()) EXPECT_GE(other.total_tokens() + 1e-6, own) << other.policy();
}

TEST(AdminExplain, TakesTextAndChatsAsGenerateDoes) {
  Rig rig(TinyConfig(), server::LoadModelFolder);
  v1::ExplainPlanRequest request;
  v1::ExplainPlanResponse response;
  request.set_text("The quick brown fox jumps over the lazy dog.");
  ASSERT_TRUE(rig.Explain(request, response).ok());
  EXPECT_GT(response.prompt_tokens(), 5);
  EXPECT_EQ(response.basis(), v1::ExplainPlanResponse::UNLEARNED);
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("Hello, my name is Clara.");
  ASSERT_TRUE(rig.Explain(request, response).ok());
  EXPECT_GT(response.prompt_tokens(), 5);
  // What Generate refuses is refused here, with the same field.
  request.clear_input();
  EXPECT_EQ(rig.Explain(request, response).error_code(), StatusCode::INVALID_ARGUMENT);
  request.mutable_tokens()->add_ids(-1);
  EXPECT_EQ(rig.Explain(request, response).error_code(), StatusCode::INVALID_ARGUMENT);
  request.set_text("a");
  request.set_model("other");
  EXPECT_EQ(rig.Explain(request, response).error_code(), StatusCode::NOT_FOUND);
  request.clear_model();
  request.mutable_cache()->set_salt(std::string(100'000, 's'));
  EXPECT_EQ(rig.Explain(request, response).error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST(AdminExplain, LooksIntoTheCallersOwnCacheOnly) {
  Rig rig(TokenConfig());
  const std::vector<int32_t> ids = Ids(1, 300);
  rig.Run(ids, kRed);
  v1::ExplainPlanRequest request;
  for (const int32_t id : ids) request.mutable_tokens()->add_ids(id);
  v1::ExplainPlanResponse response;
  ASSERT_TRUE(rig.Explain(request, response, kRed).ok());
  EXPECT_EQ(response.kv_match_tokens(), 300);
  ASSERT_TRUE(rig.Explain(request, response, kBlue).ok());
  EXPECT_EQ(response.kv_match_tokens(), 0);
  request.set_tenant("red");
  EXPECT_EQ(rig.Explain(request, response, kBlue).error_code(), StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(rig.Explain(request, response, kAdmin).ok());
  EXPECT_EQ(response.kv_match_tokens(), 300);
  EXPECT_EQ(rig.Explain(request, response).error_code(), StatusCode::UNAUTHENTICATED);
}

// --- The engine's side ---

TEST(AdminCalls, WaitForTheStepUnderWayAndEndWithTheDaemon) {
  StepGate gate;
  Rig rig(TinyConfig(), FingerprintLoader(&gate));
  gate.Close();
  std::thread caller([&] { rig.Run(Ids(1, 10)); });
  gate.AwaitStanding();
  v1::GetCacheStatisticsResponse response;
  grpc::Status status;
  std::thread asker([&] { status = rig.Statistics(response); });
  gate.Open();
  asker.join();
  caller.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.totals().lookups(), 1);
}

TEST(AdminCalls, OfACrowdAreAnsweredOrRefusedWhileRequestsGoOn) {
  Rig rig(TinyConfig());
  std::vector<std::thread> crowd;
  std::atomic<int> answered = 0, refused = 0;
  for (int t = 0; t < 8; ++t) {
    crowd.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        v1::ExplainPlanRequest request;
        for (const int32_t id : Ids(t, 2000)) request.mutable_tokens()->add_ids(id);
        v1::ExplainPlanResponse response;
        const grpc::Status status = rig.Explain(request, response);
        EXPECT_TRUE(status.ok() || status.error_code() == StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
        ++(status.ok() ? answered : refused);
      }
    });
  }
  for (int i = 0; i < 20; ++i) rig.Run(Ids(1000 + i, 100));
  for (std::thread& thread : crowd) thread.join();
  EXPECT_EQ(answered + refused, 160);
  EXPECT_GT(answered, 0);
  EXPECT_TRUE(rig.daemon().BecomesIdle());
}

// --- Who may, without tokens ---

TEST(AdminAccess, WithoutTokensIsForLoopbackOnly) {
  config::Config config = TinyConfig();
  config.server.listen = "0.0.0.0:0";
  config.server.allow_insecure = true;
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  const std::string address = daemon.daemon().grpc_address();
  const std::string port = address.substr(address.rfind(':') + 1);
  const auto admin =
      v1::AdminService::NewStub(grpc::CreateChannel("127.0.0.1:" + port, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::FlushCacheResponse response;
  const grpc::Status status = admin->FlushCache(&context, {}, &response);
  EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("configure auth.tokens"));
}

// --- The page ---

TEST(CachePage, ShowsShapeCheckpointsBudgetsAndPriceAndNoText) {
  Rig rig(TinyConfig(), server::LoadModelFolder);
  v1::GenerateRequest request = TextRequest("My secret word is xylophone and it stays secret.", 4);
  request.mutable_cache()->set_salt("salt-of-mine");
  const auto stub = rig.daemon().NewStub();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Collect(*stub, request).status.ok());
  ASSERT_TRUE(rig.daemon().BecomesIdle());
  const Page page = rig.Page();
  ASSERT_EQ(page.status, 200);
  EXPECT_THAT(page.headers, HasSubstr("Content-Type: text/html; charset=utf-8"));
  EXPECT_THAT(page.headers, HasSubstr("Cache-Control: no-store"));
  EXPECT_THAT(page.headers, HasSubstr("Content-Security-Policy: default-src 'none'"));
  for (const char* part : {"Budget", "Checkpoints", "prompt_end", "Tree", "<svg", "price of a checkpoint",
                           "eviction order", "Most used nodes", "http-equiv=\"refresh\""}) {
    EXPECT_THAT(page.body, HasSubstr(part));
  }
  for (const char* secret : {"xylophone", "secret", "salt-of-mine", "<script", "src=", "href="}) {
    EXPECT_THAT(page.body, Not(HasSubstr(secret)));
  }
}

TEST(CachePage, IsForAdminsWhereTokensAreConfigured) {
  Rig rig(TokenConfig());
  rig.Run(Ids(1, 100), kRed);
  const auto status_with = [&](const std::string& value) { return rig.Page({"Authorization: " + value}).status; };
  const Page none = rig.Page();
  EXPECT_EQ(none.status, 401);
  EXPECT_THAT(none.headers, HasSubstr("WWW-Authenticate: Basic realm="));
  EXPECT_THAT(none.body, Not(HasSubstr("<td>")));
  EXPECT_EQ(rig.Page({Bearer(kAdmin)}).status, 200);
  EXPECT_EQ(rig.Page({"aUTHORIZATION:Bearer admin-token  "}).status, 200) << "as HTTP writes headers";
  EXPECT_EQ(rig.Page({Bearer(kRed)}).status, 403);
  EXPECT_EQ(rig.Page({Bearer("wrong")}).status, 401);
  EXPECT_EQ(status_with("Basic YW55OmFkbWluLXRva2Vu"), 200) << "any:admin-token, as browsers send it";
  EXPECT_EQ(status_with("Basic YW55OnJlZC10b2tlbg=="), 403) << "any:red-token";
  for (const char* value : {"Basic YW55", "Basic ****", "Basic ", "Basic =", "Basic ====", "", "admin-token"}) {
    EXPECT_EQ(status_with(value), 401) << value;
  }
  EXPECT_EQ(rig.Page({Bearer(kAdmin), Bearer(kAdmin)}).status, 401) << "two headers can be read two ways";
  EXPECT_EQ(rig.Page({"X: a" + std::string(1, '\0') + "\nAuthorization: Bearer admin-token"}).status, 401);
  // Neither the path nor its query opens it.
  for (const char* path : {"/cache?token=admin-token", "/cache?x=Authorization:Bearer%20admin-token"}) {
    EXPECT_EQ(Get(rig.ops(), path).status, 401) << path;
  }
  for (const char* path : {"/cache/", "/cache/../cache", "//cache", "/cache%00", "/CACHE", "/../cache"}) {
    EXPECT_EQ(Get(rig.ops(), path, {Bearer(kAdmin)}).status, 404) << path;
  }
  EXPECT_THAT(rig.Page({Bearer(kAdmin)}).body, HasSubstr("<td>red</td>"));
}

TEST(CachePage, WithoutTokensIsNotForOtherSitesNames) {
  Rig rig(TinyConfig());
  for (const char* host : {"127.0.0.1:9464", "localhost", "localhost:1", "[::1]:9464"}) {
    EXPECT_EQ(rig.Page({std::string("Host: ") + host}).status, 200) << host;
  }
  for (const char* host : {"evil.example", "127.evil.example:80", "evil.example:80", "\"><script>"}) {
    const Page page = rig.Page({std::string("Host: ") + host});
    EXPECT_EQ(page.status, 403) << host;
    EXPECT_THAT(page.body, Not(HasSubstr("<script")));
  }
}

}  // namespace
}  // namespace invar::e2e
