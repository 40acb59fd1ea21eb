// See daemon_fixture.h.
#include "tests/e2e/daemon_fixture.h"

#include <httplib.h>

#include <bit>
#include <future>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "tests/support/wrapped_model.h"

namespace invar::e2e {
namespace {

class GatedModel final : public testing::WrappedModel {
 public:
  GatedModel(std::unique_ptr<models::Model> model, StepGate* gate) : WrappedModel(std::move(model)), gate_(gate) {}
  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) override {
    if (gate_ != nullptr) gate_->Pass();
    return WrappedModel::Forward(memory, spans);
  }

 private:
  StepGate* gate_;
};

}  // namespace

void StepGate::Close() {
  MutexLock lock(mu_);
  allowed_ = 0;
}

void StepGate::Open() {
  MutexLock lock(mu_);
  allowed_ = INT64_MAX;
  changed_.NotifyAll();
}

void StepGate::Allow(const int64_t steps) {
  MutexLock lock(mu_);
  allowed_ = steps;
  changed_.NotifyAll();
}

void StepGate::Pass() {
  MutexLock lock(mu_);
  while (allowed_ == 0) {
    standing_ = true;
    changed_.NotifyAll();
    changed_.Wait(mu_);
  }
  standing_ = false;
  --allowed_;
}

void StepGate::AwaitStanding() {
  MutexLock lock(mu_);
  while (!standing_) changed_.Wait(mu_);
}

std::string TinyModelFolder() { return std::string(INVAR_SOURCE_DIR) + "/assets/tiny-hybrid"; }

config::Config TinyConfig() {
  static const bool quiet = [] {
    ConfigureLogs(LogFormat::kText, "error");
    return true;
  }();
  (void)quiet;
  config::Config config;
  config.model.path = TinyModelFolder();
  config.server.listen = "127.0.0.1:0";
  config.ops.listen = "127.0.0.1:0";
  config.engine.pack_to_file = false;
  config.engine.kv_budget = int64_t{64} << 20;
  config.health.probe_period = config::Duration(0);  // Tests count connections.
  config.log.requests = false;
  return config;
}

server::ModelLoader FingerprintLoader(StepGate* gate) {
  return [gate](const config::Config& config) -> StatusOr<server::ModelParts> {
    server::ModelParts parts;
    parts.name = "fingerprint";
    StatusOr<std::unique_ptr<models::Tokenizer>> tokenizer = models::LoadTokenizer(config.model.path);
    if (!tokenizer.ok()) return tokenizer.status();
    parts.tokenizer = *std::move(tokenizer);
    parts.model = std::make_unique<GatedModel>(
        models::MakeFingerprintModel({.vocabulary_size = 2048, .max_sequence_tokens = 65536}), gate);
    return parts;
  };
}

RunningDaemon::RunningDaemon(const config::Config& config, server::ModelLoader loader, const Clock* const clock) {
  std::promise<Status> loaded;
  StatusOr<std::unique_ptr<server::Daemon>> daemon =
      server::Daemon::Start({.config = config}, std::move(loader), clock != nullptr ? *clock : real_clock_,
                            [&loaded](const Status& status) { loaded.set_value(status); });
  Check(daemon.ok(), "the daemon starts", daemon.status().message());
  daemon_ = *std::move(daemon);
  const Status status = loaded.get_future().get();
  Check(status.ok(), "the model loads", status.message());
}

std::shared_ptr<grpc::Channel> RunningDaemon::NewChannel(const grpc::ChannelArguments& arguments) const {
  grpc::ChannelArguments own = arguments;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(daemon_->grpc_address(), grpc::InsecureChannelCredentials(), own);
}

std::unique_ptr<v1::GenerationService::Stub> RunningDaemon::NewStub() const {
  return v1::GenerationService::NewStub(NewChannel());
}

void RunningDaemon::AwaitCallsOpen(const int64_t calls) {
  const auto open = [this] { return MetricSum(daemon_->MetricsText(), "invar_calls_open", "rpc=\"Generate\""); };
  while (open() < static_cast<double>(calls)) std::this_thread::yield();
}

bool RunningDaemon::BecomesIdle() {
  for (int i = 0; i < 1000; ++i) {
    if (daemon_->WaitIdle(std::chrono::milliseconds(10))) {
      const engine::EngineStats s = stats();
      if (s.running == 0 && s.waiting == 0 && s.paused == 0 && s.pages_used == 0 && s.slots_used == 0) return true;
    }
    std::this_thread::yield();
  }
  return false;
}

Outcome Collect(v1::GenerationService::Stub& stub, const v1::GenerateRequest& request,
                const std::chrono::milliseconds timeout, const std::string& token) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  Outcome outcome;
  const auto reader = stub.Generate(&context, request);
  v1::GenerateResponse response;
  const auto add = [&outcome](const auto& part) {
    outcome.text += part.text();
    outcome.token_ids.insert(outcome.token_ids.end(), part.token_ids().begin(), part.token_ids().end());
    for (const v1::TokenLogprob& logprob : part.logprobs()) {
      outcome.logit_bits.push_back(logprob.logit_bits());
      outcome.logprob_bits.push_back(logprob.logprob_bits());
    }
  };
  while (reader->Read(&response)) {
    if (response.has_delta()) add(response.delta());
    if (response.has_finished()) {
      add(response.finished());
      outcome.finished = response.finished();
      ++outcome.finished_count;
    }
    outcome.messages.push_back(response);
  }
  outcome.status = reader->Finish();
  return outcome;
}

v1::GenerateRequest TokensRequest(const std::vector<int32_t>& ids, const int32_t max_tokens) {
  v1::GenerateRequest request;
  for (const int32_t id : ids) request.mutable_tokens()->add_ids(id);
  request.mutable_sampling()->set_temperature(0.0F);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_output()->set_token_ids(true);
  request.mutable_output()->set_logprob_bits(true);
  request.set_stream(true);
  return request;
}

v1::GenerateRequest TextRequest(const std::string& text, const int32_t max_tokens) {
  v1::GenerateRequest request = TokensRequest({}, max_tokens);
  request.set_text(text);
  return request;
}

HttpAnswer HttpGet(const std::string& address, const std::string& path) {
  httplib::Client client("http://" + address);
  const httplib::Result result = client.Get(path.c_str());
  if (!result) return {};
  return {.status = result->status, .body = result->body};
}

double MetricSum(const std::string& text, const std::string& name, const std::string& label_part) {
  std::istringstream lines(text);
  std::string line;
  double sum = 0.0;
  bool found = false;
  while (std::getline(lines, line)) {
    if (!line.starts_with(name) ||
        (line.size() > name.size() && line[name.size()] != '{' && line[name.size()] != ' ')) {
      continue;
    }
    if (line.find(label_part) == std::string::npos) continue;
    sum += std::stod(line.substr(line.rfind(' ') + 1));
    found = true;
  }
  return found ? sum : -1.0;
}

}  // namespace invar::e2e
