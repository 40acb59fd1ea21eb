// One rule for hybrid and dense models: state_tokens <= min(kv_tokens, limit).
#include "cache/prefix/resume.h"

#include <algorithm>

namespace invar::cache {

ResumePoint Resume(const Match& match, const int32_t limit, const bool has_state) {
  ResumePoint point{.match = {.kv_tokens = match.kv_tokens}};
  if (!has_state) {
    point.match.state_tokens = std::min(match.kv_tokens, limit);
    return point;
  }
  const int32_t deepest = std::min(match.kv_tokens, limit);
  for (Node* const node : match.nodes) {
    if (node->end > deepest) break;
    if (node->checkpoint.has_value()) {
      point.match.state_tokens = node->end;
      point.from = node;
    }
  }
  return point;
}

}  // namespace invar::cache
