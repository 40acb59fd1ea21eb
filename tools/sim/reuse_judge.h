// What a request may have found in the prefix cache, from the outside alone: the tokens, scopes, starts and ends of all
// requests and the times of flushes. The engine's own reports are held against it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/sim/observed.h"
#include "tools/sim/schedule.h"

namespace invar::sim {

// One request that began to run, and what is known of it. Requires: all outlive the judge.
struct Begun {
  const PlannedRequest* planned = nullptr;
  const Observed* observed = nullptr;
};

class ReuseJudge {
 public:
  ReuseJudge(const Schedule& schedule, std::vector<Begun> runs) : schedule_(schedule), runs_(std::move(runs)) {}

  // Sentences about what `run`'s report of its reuse must not say.
  std::vector<std::string> Problems(const Begun& run) const;

 private:
  int32_t MostShared(const Begun& run, bool of_states) const;
  TimeNs LastFlush(const engine::Request& request, TimeNs until, bool of_states) const;

  const Schedule& schedule_;
  const std::vector<Begun> runs_;
};

}  // namespace invar::sim
