// The real program over the tiny model, and a client of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/child_process.h"
#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {

// Ports of the system's choice, the tiny model, quiet logs; then `more`.
std::vector<std::string> InvardArguments(std::vector<std::string> more = {});

// Runs when the constructor returns; the test fails where it does not.
struct InvardProcess {
  explicit InvardProcess(std::vector<std::string> more = {});

  ChildProcess process;
  std::string address, ops;
  std::unique_ptr<v1::GenerationService::Stub> stub;
};

}  // namespace invar::e2e
