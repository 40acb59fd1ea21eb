// See health_client.h.
#include "tests/e2e/health_client.h"

#include <grpcpp/generic/generic_stub.h>

#include <vector>

namespace invar::e2e {
namespace {

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return {};
  std::string out;
  for (const grpc::Slice& slice : slices) out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return out;
}

// One operation on a queue of its own; true where it went well.
bool Next(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok;
}

}  // namespace

RawOutcome CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& request,
                   const std::string& token) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  RawOutcome outcome;
  grpc::ByteBuffer reply;
  if (Next(queue)) {
    call->WriteLast(ToBuffer(request), grpc::WriteOptions(), nullptr);
    if (Next(queue)) {
      call->Read(&reply, nullptr);
      if (Next(queue)) outcome.reply = ToString(reply);
    }
  }
  if (!outcome.reply.empty()) {
    // A stream that would go on (Watch) is not waited for.
    context.TryCancel();
  }
  call->Finish(&outcome.status, nullptr);
  Next(queue);
  queue.Shutdown();
  return outcome;
}

Health CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
                   const std::string& token) {
  // HealthCheckRequest { string service = 1; }  HealthCheckResponse { ServingStatus status = 1; }
  std::string request;
  if (!service.empty()) request = std::string("\x0A") + static_cast<char>(service.size()) + service;
  const RawOutcome outcome = CallRaw(channel, "/grpc.health.v1.Health/Check", request, token);
  if (outcome.reply == std::string("\x08\x01")) return Health::kServing;
  if (outcome.reply == std::string("\x08\x02")) return Health::kNotServing;
  return outcome.status.error_code() == grpc::StatusCode::UNAUTHENTICATED ? Health::kRefused : Health::kUnknown;
}

}  // namespace invar::e2e
