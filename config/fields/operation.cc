// How the daemon ends, is watched and tells of itself.
#include <chrono>

#include "config/fields/sections.h"

namespace invar::config {

using std::chrono::hours;
using std::chrono::milliseconds;

std::vector<Field> OperationFields() {
  return {
      {"drain.timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.drain.timeout; }, milliseconds(0), hours(24)},
       "After SIGTERM, running requests may go on so long before they end with UNAVAILABLE.", Takes::kOnReload},
      {"drain.persist_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.drain.persist_timeout; }, milliseconds(0), hours(24)},
       "After that, the tiers of the prefix cache may take so long to store what only memory holds, the most recently "
       "used first, and ones that do not answer are asked again; a further stop signal ends it.",
       Takes::kOnReload},
      {"health.stall_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.health.stall_timeout; }, milliseconds(100), hours(24)},
       "/livez fails when work exists and no step has ended for so long.", Takes::kOnReload},
      {"health.probe_period",
       DurationKind{+[](Config& c) -> Duration& { return c.health.probe_period; }, milliseconds(0), hours(1)},
       "How often the daemon dials its own gRPC port; /livez fails when that has not reacted for health.stall_timeout. "
       "0s: never."},
      {"metrics.vllm_aliases", BoolKind{+[](Config& c) -> bool& { return c.metrics.vllm_aliases; }},
       "Also export the vllm:* names that dashboards and autoscalers already read."},
      {"log.format", ChoiceKind{+[](Config& c) -> std::string& { return c.log.format; }, {"json", "text"}},
       "Form of the log lines on stderr."},
      {"log.requests", BoolKind{+[](Config& c) -> bool& { return c.log.requests; }},
       "One line of facts at the end of each request, at level info; never its text.", Takes::kOnReload},
      {"log.level",
       ChoiceKind{+[](Config& c) -> std::string& { return c.log.level; }, {"trace", "debug", "info", "warn", "error"}},
       "Least severe level that is logged.", Takes::kOnReload},
  };
}

}  // namespace invar::config
