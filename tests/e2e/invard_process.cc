// See invard_process.h.
#include "tests/e2e/invard_process.h"

#include <optional>
#include <utility>

namespace invar::e2e {

std::vector<std::string> InvardArguments(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"--model", TinyModelFolder(),        "--set", "server.listen=127.0.0.1:0",
                                        "--set",   "ops.listen=127.0.0.1:0", "--set", "engine.pack_to_file=false",
                                        "--set",   "log.level=error"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

InvardProcess::InvardProcess(std::vector<std::string> more) : process(INVARD_PATH, InvardArguments(std::move(more))) {
  const std::string line = process.ReadLine().value_or("");
  address = GrpcAddressOf(line);
  EXPECT_FALSE(address.empty()) << "no `listening` line";
  const size_t at = line.find("ops=");
  if (at != std::string::npos) ops = line.substr(at + 4);
  stub = v1::GenerationService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
}

}  // namespace invar::e2e
