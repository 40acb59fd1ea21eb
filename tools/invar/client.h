// What generate and chat share: a channel to a daemon, and one streamed call.
#pragma once

#include <grpcpp/channel.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "invar/v1/generation.grpc.pb.h"

namespace invar::tools {

struct ClientOptions {
  std::string server;
  std::string token;
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_name;
};
// --server, --token (or the environment's INVAR_TOKEN), --tls-ca and so on.
void AddClientOptions(CLI::App& app, ClientOptions& options);

// What generate and chat can ask of one answer; absent: the model's defaults.
struct AnswerOptions {
  std::optional<int32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int64_t> seed;
  std::string template_options;
};
void AddAnswerOptions(CLI::App& app, AnswerOptions& options);
// Template options go to the request's chat, where it has one.
void FillAnswer(const AnswerOptions& options, v1::GenerateRequest& request);
// The text a message brings, if any.
const std::string& TextOf(const v1::GenerateResponse& response);

// A channel; null where a TLS file cannot be read, with the reason on stderr.
std::shared_ptr<grpc::Channel> OpenChannel(const ClientOptions& options);
// A stub; null where a TLS file cannot be read, with the reason on stderr.
std::unique_ptr<v1::GenerationService::Stub> Connect(const ClientOptions& options);
// Puts the token into the call.
void Authorize(const ClientOptions& options, grpc::ClientContext& context);

// Runs one Generate. Calls `on_event` for every message; false from it cancels the call. Gives the final status.
grpc::Status Stream(v1::GenerationService::Stub& stub, const ClientOptions& options, const v1::GenerateRequest& request,
                    const std::function<bool(const v1::GenerateResponse&)>& on_event);

// "UNIMPLEMENTED: sampling.n: ..." on stderr.
void PrintError(const char* command, const grpc::Status& status);

}  // namespace invar::tools
