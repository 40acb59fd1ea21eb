// Start, loading, drain and end: in process with a model that holds still, and as a real process told by signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/health_client.h"
#include "tests/e2e/invard_process.h"

namespace invar::e2e {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

TEST(Life, AnswersUnavailableAndNotServingWhileLoading) {
  const config::Config config = TinyConfig();
  const RealClock clock;
  std::promise<void> release;
  std::promise<Status> loaded;
  StatusOr<std::unique_ptr<server::Daemon>> daemon = server::Daemon::Start(
      {.config = config},
      [&](const config::Config& c) {
        release.get_future().wait();
        return server::LoadModelFolder(c);
      },
      clock, [&](const Status& status) { loaded.set_value(status); });
  ASSERT_TRUE(daemon.ok());
  const auto channel = grpc::CreateChannel((*daemon)->grpc_address(), grpc::InsecureChannelCredentials());
  const auto stub = v1::GenerationService::NewStub(channel);
  EXPECT_EQ(CheckHealth(channel, ""), Health::kNotServing);
  EXPECT_EQ(CheckHealth(channel, "invar.v1.GenerationService"), Health::kNotServing);
  EXPECT_EQ(HttpGet((*daemon)->ops_address(), "/readyz").status, 503);
  EXPECT_EQ(HttpGet((*daemon)->ops_address(), "/livez").status, 200);
  const Outcome early = Collect(*stub, TokensRequest({1}, 1));
  EXPECT_EQ(early.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(early.status.error_message(), HasSubstr("loading"));
  release.set_value();
  ASSERT_TRUE(loaded.get_future().get().ok());
  EXPECT_EQ(CheckHealth(channel, ""), Health::kServing);
  EXPECT_EQ(CheckHealth(channel, "invar.v1.GenerationService"), Health::kServing);
  EXPECT_EQ(CheckHealth(channel, "unknown.Service"), Health::kUnknown);
  EXPECT_EQ(CheckHealth(channel, "invar.v1.TransferService"), Health::kUnknown) << "no prefixes are served here";
  EXPECT_TRUE(Collect(*stub, TokensRequest({1}, 1)).status.ok());
}

TEST(Life, TellsWhyAModelDoesNotLoad) {
  config::Config config = TinyConfig();
  config.model.path = "/nonexistent";
  const RealClock clock;
  std::promise<Status> loaded;
  StatusOr<std::unique_ptr<server::Daemon>> daemon = server::Daemon::Start(
      {.config = config}, server::LoadModelFolder, clock, [&](const Status& status) { loaded.set_value(status); });
  ASSERT_TRUE(daemon.ok());
  const Status status = loaded.get_future().get();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("/nonexistent"));
}

TEST(Life, RefusesAModelWhoseOwnDefaultsNoRequestCouldUse) {
  struct Row {
    models::GenerationDefaults defaults;
    std::string named;
  };
  const std::vector<Row> rows = {{{.top_p = 0.0F, .eos = {}}, "generation_config.json"},
                                 {{.repetition_penalty = 1000.0F, .eos = {}}, "generation_config.json"},
                                 {{.eos = {TokenId(2048)}}, "eos_token_id"}};
  for (const Row& row : rows) {
    const RealClock clock;
    std::promise<Status> loaded;
    StatusOr<std::unique_ptr<server::Daemon>> daemon = server::Daemon::Start(
        {.config = TinyConfig()},
        [&](const config::Config& c) {
          StatusOr<server::ModelParts> parts = FingerprintLoader(nullptr)(c);
          if (parts.ok()) parts->defaults = row.defaults;
          return parts;
        },
        clock, [&](const Status& status) { loaded.set_value(status); });
    ASSERT_TRUE(daemon.ok());
    const Status status = loaded.get_future().get();
    EXPECT_EQ(status.code(), invar::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(row.named));
  }
}

TEST(Life, DrainLetsRunningAndQueuedFinishAndRefusesNewOnes) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.engine.running_max = 8;
  RunningDaemon daemon(config, FingerprintLoader(&gate));
  const auto channel = daemon.NewChannel();
  const auto stub = v1::GenerationService::NewStub(channel);
  gate.Close();
  std::vector<std::future<Outcome>> calls;
  for (int i = 0; i < 16; ++i) {
    calls.push_back(std::async(std::launch::async, [&] { return Collect(*stub, TokensRequest({1, 2}, 30)); }));
  }
  gate.AwaitStanding();
  daemon.AwaitCallsOpen(16);
  daemon.daemon().BeginDrain();
  EXPECT_EQ(CheckHealth(channel, ""), Health::kNotServing);
  EXPECT_EQ(HttpGet(daemon.daemon().ops_address(), "/readyz").status, 503);
  const Outcome late = Collect(*stub, TokensRequest({1}, 1));
  EXPECT_EQ(late.status.error_code(), StatusCode::UNAVAILABLE);
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(late.status.error_details()));
  google::rpc::RetryInfo retry;
  bool has_retry = false;
  for (const auto& any : details.details()) has_retry = has_retry || any.UnpackTo(&retry);
  EXPECT_TRUE(has_retry);
  gate.Open();
  for (std::future<Outcome>& call : calls) {
    const Outcome outcome = call.get();
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.token_ids.size(), 30U);
  }
  EXPECT_TRUE(daemon.daemon().WaitIdle(std::chrono::seconds(10)));
}

// A flush would take from the tiers what they are about to be given.
TEST(Life, WhileDrainingNoServiceTakesCalls) {
  config::Config config = TinyConfig();
  config.transfer.role = "prefill";
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  const auto channel = daemon.NewChannel();
  daemon.daemon().BeginDrain();
  for (const char* const method : {"/invar.v1.GenerationService/ListModels", "/invar.v1.AdminService/FlushCache",
                                   "/invar.v1.AdminService/GetCacheStatistics", "/invar.v1.AdminService/ExplainPlan",
                                   "/invar.v1.TransferService/FetchPrefix", "/invar.v1.TransferService/QuotePrefix",
                                   "/invar.v1.TransferService/VerifyPrefix"}) {
    EXPECT_EQ(CallRaw(channel, method, "").status.error_code(), grpc::StatusCode::UNAVAILABLE) << method;
  }
}

TEST(Life, EndGivesEveryOpenCallAStatus) {
  StepGate gate;
  RunningDaemon daemon(TinyConfig(), FingerprintLoader(&gate));
  const auto stub = daemon.NewStub();
  gate.Close();
  std::vector<std::future<Outcome>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::async(std::launch::async, [&] { return Collect(*stub, TokensRequest({1, 2}, 60000)); }));
  }
  gate.AwaitStanding();
  daemon.AwaitCallsOpen(8);
  daemon.daemon().BeginDrain();
  gate.Open();
  daemon.Destroy();
  for (std::future<Outcome>& call : calls) {
    const Outcome outcome = call.get();
    EXPECT_TRUE(outcome.status.error_code() == StatusCode::UNAVAILABLE || outcome.status.ok())
        << outcome.status.error_code() << ' ' << outcome.status.error_message();
  }
}

// --- The real program ---

// A call that is surely under way: its first message has been read.
struct OpenCall {
  OpenCall(v1::GenerationService::Stub& stub, const int32_t max_tokens) {
    reader = stub.Generate(&context, TokensRequest({1, 2, 3}, max_tokens));
    v1::GenerateResponse response;
    EXPECT_TRUE(reader->Read(&response));
  }
  grpc::Status Rest() {
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
};

TEST(Process, FinishesWhatRunsAndExitsCleanlyAfterATermSignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    InvardProcess invard;
    OpenCall call(*invard.stub, 2000);
    invard.process.Signal(signal);
    EXPECT_TRUE(call.Rest().ok());
    EXPECT_EQ(invard.process.Wait(), 0);
  }
}

// docs/CONFIG.md: not from the folder of the file that names them.
TEST(Process, TakesRelativePathsOfItsConfigurationFromWhereItWasStarted) {
  namespace fs = std::filesystem;
  const cache::TempFolder folder;
  const fs::path started_in = fs::path(folder.path()) / "here";
  const fs::path configured_in = fs::path(folder.path()) / "etc";
  fs::create_directories(started_in / "slow");
  fs::create_directories(configured_in);
  fs::create_directory_symlink(TinyModelFolder(), started_in / "model");
  std::ofstream(configured_in / "invard.yaml") << "version: 1\n"
                                                  "model: {path: model}\n"
                                                  "server: {listen: '127.0.0.1:0'}\n"
                                                  "ops: {listen: '127.0.0.1:0'}\n"
                                                  "engine: {pack_to_file: false}\n"
                                                  "log: {level: error}\n"
                                                  "cache: {tiers: {disk: {path: slow/tier}}}\n";
  ChildProcess invard("/bin/sh",
                      {"-c", "cd " + started_in.string() + " && exec " INVARD_PATH " --config ../etc/invard.yaml"});
  EXPECT_FALSE(GrpcAddressOf(invard.ReadLine().value_or("")).empty()) << "it found model, and --config";
  EXPECT_TRUE(fs::exists(started_in / "slow" / "tier" / "lock"));
  EXPECT_FALSE(fs::exists(configured_in / "slow"));
  invard.Signal(SIGTERM);
  EXPECT_EQ(invard.Wait(), 0);
}

// Eight run, eight wait, then the signal: everybody gets an answer or a status, new calls are refused, the process
// ends. In turn with time to finish, with hardly any, and with a second signal. tests/soak/stop_signals.sh repeats it.
TEST(Process, EightRunningAndEightQueuedAllGetAnEndAfterATermSignal) {
  for (int i = 0; i < 10; ++i) {
    const bool no_time = i % 3 == 1;
    const bool twice = i % 3 == 2;
    InvardProcess invard(
        {"--set", "engine.running_max=8", "--set", no_time ? "drain.timeout=20ms" : "drain.timeout=30s"});
    std::vector<std::future<Outcome>> calls;
    for (int call = 0; call < 16; ++call) {
      calls.push_back(std::async(std::launch::async, [&] {
        return Collect(*invard.stub, TokensRequest({1, 2, 3}, twice ? 4000 : 150), std::chrono::seconds(60));
      }));
    }
    const auto reached = [&](const std::string& metrics, const char* name) { return MetricSum(metrics, name) >= 8; };
    std::string metrics;
    while (!reached(metrics, "invar_requests_running") || !reached(metrics, "invar_requests_waiting")) {
      metrics = HttpGet(invard.ops, "/metrics").body;
      ASSERT_EQ(MetricSum(metrics, "invar_requests_finished_total") > 8, false) << "too quick to be caught at it";
    }
    const auto channel = grpc::CreateChannel(invard.address, grpc::InsecureChannelCredentials());
    ASSERT_EQ(CheckHealth(channel, ""), Health::kServing);
    invard.process.Signal(SIGTERM);
    if (twice) {
      EXPECT_EQ(invard.process.Wait(std::chrono::milliseconds(50)), -1) << "one signal drains";
      invard.process.Signal(SIGTERM);
    }
    if (!no_time && !twice) {
      // At once, that is: as soon as the signal has been taken.
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (CheckHealth(channel, "") == Health::kServing && std::chrono::steady_clock::now() < until) {
      }
      EXPECT_EQ(Collect(*invard.stub, TokensRequest({1}, 1)).status.error_code(), StatusCode::UNAVAILABLE);
    }
    EXPECT_EQ(invard.process.Wait(no_time || twice ? std::chrono::milliseconds(1500) : std::chrono::seconds(30)), 0);
    for (std::future<Outcome>& call : calls) {
      const Outcome outcome = call.get();
      if (no_time || twice) {
        EXPECT_TRUE(outcome.status.ok() || outcome.status.error_code() == StatusCode::UNAVAILABLE)
            << outcome.status.error_code() << ' ' << outcome.status.error_message();
      } else {
        EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_code() << ' ' << outcome.status.error_message();
        EXPECT_EQ(outcome.token_ids.size(), 150U);
      }
    }
  }
}

TEST(Process, EndsWhatIsLeftWhenTheDrainTimeIsOver) {
  InvardProcess invard({"--set", "drain.timeout=100ms", "--set", "limits.stream_buffer=4KiB"});
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4096);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::GenerationService::NewStub(
      grpc::CreateCustomChannel(invard.address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  v1::GenerateRequest request = TokensRequest({1, 2, 3}, 4000);
  request.mutable_output()->set_logprobs(20);
  const auto reader = stub->Generate(&context, request);  // Never reads on: the call cannot finish.
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  invard.process.Signal(SIGTERM);
  EXPECT_EQ(invard.process.Wait(std::chrono::seconds(5)), 0);
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(Process, LeavesWithinASecondOfASecondSignal) {
  InvardProcess invard({"--set", "limits.stream_buffer=4KiB"});
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4096);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::GenerationService::NewStub(
      grpc::CreateCustomChannel(invard.address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  v1::GenerateRequest request = TokensRequest({1, 2, 3}, 4000);
  request.mutable_output()->set_logprobs(20);
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  invard.process.Signal(SIGTERM);
  EXPECT_EQ(invard.process.Wait(std::chrono::milliseconds(300)), -1) << "one signal drains";
  invard.process.Signal(SIGTERM);
  EXPECT_EQ(invard.process.Wait(std::chrono::milliseconds(1500)), 0);
}

TEST(Process, SurvivesTermSignalsAtAnyMomentOfStarting) {
  for (int i = 0; i < 15; ++i) {
    ChildProcess process(INVARD_PATH, InvardArguments());
    if (i % 3 == 1) process.Wait(std::chrono::milliseconds(i * 2));
    if (i % 3 == 2) process.ReadLine();
    process.Signal(SIGTERM);
    const int code = process.Wait(std::chrono::seconds(5));
    // Before the handler stands the signal ends the process as it ends any.
    EXPECT_TRUE(code == 0 || code == 1000 + SIGTERM) << code;
    EXPECT_TRUE(i % 3 != 2 || code == 0) << code;
  }
}

TEST(Process, ExitCodesTellUsageFromConfigurationFromFailure) {
  const std::string bad_file = testing::TempDir() + "/bad.yaml";
  std::ofstream(bad_file) << "servr: 1\n";
  InvardProcess holder;  // Holds a port that another start cannot have.
  struct Row {
    std::vector<std::string> arguments;
    int code;
  };
  const std::vector<Row> rows = {
      {{"--version"}, 0},
      {{"--help"}, 0},
      {{"--print-default-config"}, 0},
      {{"--check-config", "--model", TinyModelFolder()}, 0},
      {{"--print-config"}, 0},
      {{"--unknown"}, 2},
      {{"surplus"}, 2},
      {{"--check-config", "--config", bad_file}, 78},
      {{"--check-config", "--config", "/nonexistent.yaml"}, 78},
      {{"--check-config", "--set", "server.listen=0.0.0.0:1"}, 78},
      {{"--check-config", "--set", "server.listen=127.0.0.1:7000", "--set", "ops.listen=127.0.0.1:7000"}, 78},
      {{"--check-config", "--set", "engine.approximate.compressor=centriod"}, 78},
      {{"--check-config", "--set", "engine.speculation.compressor=snapkv"}, 78},
      {{"--set", "engine.threads=x"}, 78},
      {{}, 78},
      {{"--model", "/nonexistent", "--set", "server.listen=127.0.0.1:0", "--set", "ops.listen=off"}, 1},
      {{"--model", TinyModelFolder(), "--set", "server.listen=" + holder.address, "--set", "ops.listen=off"}, 1},
      {{"--model", TinyModelFolder(), "--set", "server.listen=127.0.0.1:0", "--set", "tls.certificate=/nonexistent",
        "--set", "tls.key=/nonexistent"},
       1},
  };
  for (const Row& row : rows) {
    ChildProcess process(INVARD_PATH, row.arguments);
    EXPECT_EQ(process.Wait(), row.code) << testing::PrintToString(row.arguments);
  }
}

}  // namespace
}  // namespace invar::e2e
