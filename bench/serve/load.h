// The load generator: sends planned requests to a daemon and records when tokens come.
// Open loop: every request has an intended time that does not depend on how fast the server answers, and its latency
// counts from there, also while it waits for one of `in_flight_max` places; a server that stalls cannot hide its queue
// (coordinated omission).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "bench/serve/report.h"
#include "bench/serve/workload.h"
#include "invar/v1/generation.grpc.pb.h"

namespace invar::bench {

struct LoadResult {
  std::vector<RequestRecord> records;  // In the order of the plan.
  double duration_s = 0.0;             // From the start to the end of the last request.
};

// Called now and then with the number of finished requests, from the calling thread.
using Progress = std::function<void(int32_t finished, int32_t total)>;

// Vocabulary of the first served model. Errors: what ListModels answers; FAILED_PRECONDITION without a model.
StatusOr<int32_t> ReadTokenIds(v1::GenerationService::StubInterface& stub, const std::string& token);

// Blocks until every request has ended; requests that fail are records with an error, not a Status.
// `token`: API token sent as bearer, empty for none. Threads: any; reactions run on gRPC's own threads.
LoadResult RunLoad(v1::GenerationService::Stub& stub, const Workload& workload, const std::vector<PlannedRequest>& plan,
                   const std::string& token, const Progress& progress);

}  // namespace invar::bench
