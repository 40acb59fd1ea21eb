// A trace of requests that says which prefixes they share, in the format of Mooncake's published traces: one JSON
// object a line with `timestamp` (ms), `input_length` and `output_length` (tokens) and `hash_ids`, one for each block
// of 512 prompt tokens. An id stands for its block and all before it; the last block may be partial.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"

namespace invar::cache_sim {

inline constexpr int32_t kTraceBlockTokens = 512;

struct TraceRequest {
  TimeNs arrival = 0;
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;
  std::vector<int32_t> blocks;  // The trace's ids in the order they first appear: 0, 1, 2, ...
};

// Requests in the order of their arrival; those of the same moment as they stand in the file.
using Trace = std::vector<TraceRequest>;

// Errors: INVALID_ARGUMENT with the number of the line and what is wrong with it; `name` is put before that.
StatusOr<Trace> ReadTrace(std::istream& in, const std::string& name);
// Errors: as above; NOT_FOUND where the file cannot be opened.
StatusOr<Trace> ReadTraceFile(const std::string& path);

// The prompt: tokens follow from the ids alone, and different ids have no token in common.
std::vector<TokenId> PromptOf(const TraceRequest& request);

}  // namespace invar::cache_sim
