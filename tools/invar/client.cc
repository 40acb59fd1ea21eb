// See client.h.
#include "tools/invar/client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <cstdio>

#include "base/file.h"
#include "base/status.h"

namespace invar::tools {
namespace {

constexpr int64_t kPemBytesMax = int64_t{1} << 20;

// Empty path: empty text. False and a message where it cannot be read.
bool ReadPem(const std::string& path, std::string& text) {
  if (path.empty()) return true;
  StatusOr<std::string> content = ReadFile(path, kPemBytesMax);
  if (!content.ok()) {
    std::fprintf(stderr, "invar: %s\n", content.status().message().c_str());
    return false;
  }
  text = *std::move(content);
  return true;
}

}  // namespace

void AddClientOptions(CLI::App& app, ClientOptions& options) {
  app.add_option("--server", options.server, "Address of the daemon, HOST:PORT")->required();
  app.add_option("--token", options.token, "API token")->envname("INVAR_TOKEN");
  app.add_option("--tls-ca", options.tls_ca, "PEM file of the authority that signed the server's certificate: use TLS");
  app.add_option("--tls-certificate", options.tls_certificate, "PEM file of the client's certificate");
  app.add_option("--tls-key", options.tls_key, "PEM file of the client's key");
  app.add_option("--tls-name", options.tls_name, "Name the server's certificate must carry, where it is not HOST");
}

void AddAnswerOptions(CLI::App& app, AnswerOptions& o) {
  app.add_option("--max-tokens", o.max_tokens, "Most tokens to generate; absent: up to the model's length");
  app.add_option("--temperature", o.temperature, "0: greedy; absent: the model's default");
  app.add_option("--seed", o.seed, "Absent: drawn, and returned");
  app.add_option("--template-options", o.template_options, "JSON object of extra template variables");
}

void FillAnswer(const AnswerOptions& o, v1::GenerateRequest& request) {
  if (o.max_tokens) request.mutable_stopping()->set_max_tokens(*o.max_tokens);
  if (o.temperature) request.mutable_sampling()->set_temperature(*o.temperature);
  if (o.seed) request.mutable_sampling()->set_seed(*o.seed);
  if (request.has_chat() && !o.template_options.empty()) {
    request.mutable_chat()->set_template_options_json(o.template_options);
  }
}

const std::string& TextOf(const v1::GenerateResponse& response) {
  return response.has_delta() ? response.delta().text() : response.finished().text();
}

std::shared_ptr<grpc::Channel> OpenChannel(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!options.tls_ca.empty()) {
    grpc::SslCredentialsOptions tls;
    if (!ReadPem(options.tls_ca, tls.pem_root_certs) || !ReadPem(options.tls_certificate, tls.pem_cert_chain) ||
        !ReadPem(options.tls_key, tls.pem_private_key)) {
      return nullptr;
    }
    credentials = grpc::SslCredentials(tls);
    if (!options.tls_name.empty()) arguments.SetSslTargetNameOverride(options.tls_name);
  }
  return grpc::CreateCustomChannel(options.server, credentials, arguments);
}

std::unique_ptr<v1::GenerationService::Stub> Connect(const ClientOptions& options) {
  const std::shared_ptr<grpc::Channel> channel = OpenChannel(options);
  return channel == nullptr ? nullptr : v1::GenerationService::NewStub(channel);
}

void Authorize(const ClientOptions& options, grpc::ClientContext& context) {
  if (!options.token.empty()) context.AddMetadata("authorization", "Bearer " + options.token);
}

grpc::Status Stream(v1::GenerationService::Stub& stub, const ClientOptions& options, const v1::GenerateRequest& request,
                    const std::function<bool(const v1::GenerateResponse&)>& on_event) {
  grpc::ClientContext context;
  Authorize(options, context);
  const auto reader = stub.Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (!on_event(response)) context.TryCancel();
  }
  return reader->Finish();
}

void PrintError(const char* command, const grpc::Status& status) {
  const std::string_view code = StatusCodeName(static_cast<StatusCode>(status.error_code()));
  std::fprintf(stderr, "invar %s: %.*s: %s\n", command, static_cast<int>(code.size()), code.data(),
               status.error_message().c_str());
}

}  // namespace invar::tools
