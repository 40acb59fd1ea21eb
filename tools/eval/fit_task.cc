// A context grows with its units, so the largest that fits is found by halving.
#include "tools/eval/fit_task.h"

#include <fmt/format.h>

namespace invar::eval {

StatusOr<Task> FitTask(const TaskKind& kind, const uint64_t seed, const NoiseText& noise, const TaskSize& size) {
  const auto compose = [&](const int32_t units) {
    return kind.compose({.seed = seed, .units = units, .noise = noise});
  };
  StatusOr<int64_t> tokens = size.count(compose(0).context);
  if (!tokens.ok()) return tokens.status();
  if (*tokens > size.tokens) {
    return InvalidArgument(fmt::format(
        "--context-tokens: task {} needs {} tokens before any noise, found {}; give more, or leave it out of --tasks",
        kind.name, *tokens, size.tokens));
  }
  // A unit is a token at least.
  int32_t fits = 0;
  int32_t too_many = size.tokens + 1;
  // Doubling first: contexts far beyond the wanted length are not even composed.
  for (int32_t units = 1; units < too_many;) {
    tokens = size.count(compose(units).context);
    if (!tokens.ok()) return tokens.status();
    (*tokens <= size.tokens ? fits : too_many) = units;
    units = fits == units && 2 * units < too_many ? 2 * units : fits + (too_many - fits + 1) / 2;
    if (too_many - fits <= 1) break;
  }
  return compose(fits);
}

}  // namespace invar::eval
