// Tasks of a wanted length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "tools/eval/task.h"

namespace invar::eval {

struct TaskSize {
  int32_t tokens = 0;  // Of the context, at most.
  // Tokens that a context becomes.
  std::function<StatusOr<int64_t>(const std::string&)> count;
};

// The task of `kind` with as many units as `size` has room for. Errors: INVALID_ARGUMENT where not even a context
// without noise fits; those of size.count.
StatusOr<Task> FitTask(const TaskKind& kind, uint64_t seed, const NoiseText& noise, const TaskSize& size);

}  // namespace invar::eval
