// Walks the rows of a StateSpan cut behind every row whose state is emitted. A recurrence leaves its state in memory at
// each cut and goes on from there, which changes no bits; so emitting needs no second form of it.
#pragma once

#include "base/check.h"
#include "kernels/backend.h"

namespace invar::kernels {

inline void CheckEmits(const std::span<const StateSpan> spans) {
  for (const StateSpan& span : spans) {
    int32_t before = 0;
    for (const EmittedState& state : span.emit) {
      Check(state.rows > before && state.rows <= span.rows, "emitted states ascend inside their span", state.rows,
            span.rows);
      before = state.rows;
    }
  }
}

// Calls run(from, to) over rows [begin, end) of the span, counted from its first, and emit(state) between.
template <typename Run, typename Emit>
void ForRowsBetweenEmits(const StateSpan& span, const int64_t begin, const int64_t end, const Run& run,
                         const Emit& emit) {
  int64_t from = begin;
  for (const EmittedState& state : span.emit) {
    if (state.rows <= begin) continue;
    if (state.rows > end) break;
    run(from, state.rows);
    emit(state);
    from = state.rows;
  }
  if (from < end) run(from, end);
}

}  // namespace invar::kernels
