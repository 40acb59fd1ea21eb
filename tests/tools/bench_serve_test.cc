// The load generator against a fake service over loopback: what it sends, what it counts, what it does with failures.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>

#include "bench/serve/load.h"
#include "bench/serve/report.h"

namespace invar::bench {
namespace {

// Answers with as many tokens as asked; every `fail_every`th request fails. Holds answers until `concurrency` calls are
// in, so that the test sees whether the generator really keeps that many in flight.
class FakeService final : public v1::GenerationService::Service {
 public:
  int32_t fail_every = 0;
  int32_t hold_until_in_flight = 0;
  int32_t cached_tokens = 0;

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    const int32_t number = ++calls_;
    saw_token_ = context->client_metadata().count("authorization") > 0;
    WaitForCompany();
    if (fail_every > 0 && number % fail_every == 0) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
    }
    v1::GenerateResponse response;
    response.mutable_started()->set_prompt_tokens(request->tokens().ids_size());
    writer->Write(response);
    for (int32_t i = 0; i < request->stopping().max_tokens(); ++i) {
      response.mutable_delta()->add_token_ids(i);
      writer->Write(response);
      response.Clear();
    }
    v1::Usage* usage = response.mutable_finished()->mutable_usage();
    usage->set_prompt_tokens(request->tokens().ids_size());
    usage->set_cached_tokens(cached_tokens);
    usage->set_completion_tokens(request->stopping().max_tokens());
    writer->Write(response);
    return grpc::Status::OK;
  }

  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    if (serves_model) response->add_models()->set_token_ids(100);
    return grpc::Status::OK;
  }

  bool serves_model = true;
  int32_t calls() const { return calls_; }
  bool saw_token() const { return saw_token_; }

 private:
  void WaitForCompany() {
    std::unique_lock lock(mu_);
    ++arrived_;
    arrivals_.notify_all();
    arrivals_.wait(lock, [&] { return arrived_ >= hold_until_in_flight; });
  }

  std::atomic<int32_t> calls_ = 0;
  std::atomic<bool> saw_token_ = false;
  std::mutex mu_;
  std::condition_variable arrivals_;
  int32_t arrived_ = 0;  // Guarded by mu_.
};

class BenchServe : public testing::Test {
 protected:
  void SetUp() override {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = v1::GenerationService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override { server_->Shutdown(); }

  LoadResult Run(const Workload& workload, const std::string& token = "") {
    return RunLoad(*stub_, workload, PlanRequests(workload, 100), token, [](int32_t, int32_t) {});
  }

  FakeService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

TEST_F(BenchServe, CountsEveryTokenOfEveryRequest) {
  Workload workload;
  workload.requests = 40;
  workload.output_tokens = {.min = 5, .max = 5};
  workload.prompt_tokens = {.min = 10, .max = 10};
  service_.cached_tokens = 4;
  const LoadResult result = Run(workload);
  const Report report = Summarize(result.records, result.duration_s);
  EXPECT_EQ(report.requests, 40);
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(report.output_tokens, 200);
  EXPECT_EQ(report.prompt_tokens, 400);
  EXPECT_DOUBLE_EQ(report.cached_token_share, 0.4);
  EXPECT_GT(report.tokens_per_s, 0.0);
  EXPECT_GT(report.first_token_s.p50, 0.0);
}

TEST_F(BenchServe, KeepsTheStatedNumberInFlight) {
  Workload workload;
  workload.requests = 24;
  workload.concurrency = 6;
  service_.hold_until_in_flight = 6;  // Would wait for ever with fewer.
  const LoadResult result = Run(workload);
  EXPECT_EQ(Summarize(result.records, result.duration_s).failed, 0);
}

TEST_F(BenchServe, FailuresAreCountedByCodeAndDoNotStopTheRest) {
  Workload workload;
  workload.requests = 30;
  service_.fail_every = 3;
  const LoadResult result = Run(workload);
  const Report report = Summarize(result.records, result.duration_s);
  EXPECT_EQ(report.failed, 10);
  EXPECT_EQ(report.errors.at("RESOURCE_EXHAUSTED"), 10);
  EXPECT_EQ(service_.calls(), 30);
}

TEST_F(BenchServe, OpenLoopLatencyCountsFromTheIntendedTime) {
  Workload workload;
  workload.requests = 20;
  workload.mode = Workload::Mode::kOpen;
  workload.rate_per_s = 1e5;   // All at once,
  workload.in_flight_max = 1;  // but one after another: later ones have waited for all earlier ones.
  const LoadResult result = Run(workload);
  const RequestRecord& last = result.records.back();
  EXPECT_LT(last.intended_s, 0.01);
  EXPECT_GE(last.first_token_s, result.records[18].end_s);
  EXPECT_GE(Summarize(result.records, result.duration_s).first_token_s.p99, last.first_token_s - last.intended_s);
}

TEST_F(BenchServe, SendsTheApiToken) {
  Workload workload;
  workload.requests = 1;
  Run(workload);
  EXPECT_FALSE(service_.saw_token());
  Run(workload, "secret");
  EXPECT_TRUE(service_.saw_token());
}

TEST_F(BenchServe, AsksTheDaemonForItsVocabulary) {
  const StatusOr<int32_t> size = ReadTokenIds(*stub_, "");
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(*size, 100);
  service_.serves_model = false;
  EXPECT_EQ(ReadTokenIds(*stub_, "").status().code(), StatusCode::kFailedPrecondition);
}

TEST(Report, PercentilesAreNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Percentiles p = PercentilesOf(values);
  EXPECT_DOUBLE_EQ(p.p50, 50);
  EXPECT_DOUBLE_EQ(p.p95, 95);
  EXPECT_DOUBLE_EQ(p.p99, 99);
  EXPECT_DOUBLE_EQ(PercentilesOf({3.0}).p99, 3.0);
  EXPECT_DOUBLE_EQ(PercentilesOf({}).p50, 0.0);
}

TEST(Report, FailedRequestsAddNoLatencyAndNoTokens) {
  const std::vector<RequestRecord> records = {
      {.intended_s = 1, .first_token_s = 2, .end_s = 4, .prompt_tokens = 8, .output_tokens = 3, .error = ""},
      {.intended_s = 1,
       .first_token_s = 90,
       .end_s = 99,
       .prompt_tokens = 8,
       .output_tokens = 3,
       .error = "UNAVAILABLE"}};
  const Report report = Summarize(records, 10.0);
  EXPECT_DOUBLE_EQ(report.first_token_s.p99, 1.0);
  EXPECT_DOUBLE_EQ(report.per_token_s.p99, 1.0);
  EXPECT_DOUBLE_EQ(report.end_to_end_s.p99, 3.0);
  EXPECT_DOUBLE_EQ(report.tokens_per_s, 0.3);
}

TEST(Report, JsonHoldsTheKeysScriptsRead) {
  const auto json = nlohmann::json::parse(ToJson(Workload{}, Summarize({}, 1.0)));
  for (const char* key : {"requests", "failed", "tokens_per_s", "cached_token_share"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* key : {"first_token_s", "per_token_s"}) {
    for (const char* percentile : {"p50", "p95", "p99"}) EXPECT_TRUE(json.at(key).contains(percentile)) << key;
  }
}

}  // namespace
}  // namespace invar::bench
