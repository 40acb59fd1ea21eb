// Two forks a round of at most 512 tokens a span: q, k and gates of every token, laid out head after head (rows a power
// of two apart would share cache sets); then the recurrence. Rounds bound the scratch; the state carries over exactly.
#include "kernels/cpu/delta_scan.h"

#include <algorithm>
#include <vector>

#include "kernels/emit.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kRoundTokens = 512;
constexpr int64_t kRowsPerTask = 8;  // At most.

// State columns of one call for a piece of so many rows.
int64_t ColumnsAtOnce(const int64_t rows) { return rows == 1 ? kMaxTokenColumns : kMaxDeltaColumns; }

// Part of a span handled in one round; `slot` is where its rows start in the scratch.
struct Piece {
  const StateSpan* span;
  int64_t begin;  // Row of the span.
  int64_t rows;
  int64_t slot;
};

struct Layout {
  float* q;  // [heads_k][slots, dim_k]
  float* k;
  float* qk;    // [heads_k][slots]
  float* beta;  // [heads_v][slots]
  float* decay;
  int64_t slots;
};

Layout Reserve(const DeltaShape& shape, const int64_t slots, Scratch& scratch) {
  const int64_t keys = shape.heads_k * slots * shape.dim_k;
  float* memory = scratch.Floats(2 * keys + (shape.heads_k + 2 * shape.heads_v) * slots);
  Layout layout{
      .q = memory, .k = memory + keys, .qk = memory + 2 * keys, .beta = nullptr, .decay = nullptr, .slots = slots};
  layout.beta = layout.qk + shape.heads_k * slots;
  layout.decay = layout.beta + shape.heads_v * slots;
  return layout;
}

void PrepareRow(const KernelTable& table, const DeltaArgs& args, const Layout& layout, const int64_t row,
                const int64_t slot) {
  const DeltaShape& shape = args.shape;
  static thread_local std::vector<float> gates;
  gates.resize(2 * shape.heads_v);
  float* beta = gates.data();
  float* decay = beta + shape.heads_v;
  table.delta_gates(args.b.row(row), args.a.row(row), args.a_log.data(), args.dt_bias.data(), shape.heads_v, beta,
                    decay);
  for (int64_t h = 0; h < shape.heads_v; ++h) {
    layout.beta[h * layout.slots + slot] = beta[h];
    layout.decay[h * layout.slots + slot] = decay[h];
  }
  for (int64_t h = 0; h < shape.heads_k; ++h) {
    const int64_t at = h * layout.slots + slot;
    table.delta_prepare({.q = args.qkv.row(row) + h * shape.dim_k,
                         .k = args.qkv.row(row) + (shape.heads_k + h) * shape.dim_k,
                         .dim_k = shape.dim_k,
                         .q_out = layout.q + at * shape.dim_k,
                         .k_out = layout.k + at * shape.dim_k,
                         .qk = layout.qk + at});
  }
}

void ScanColumns(const KernelTable& table, const DeltaArgs& args, const Layout& layout, const Piece& piece,
                 const int64_t h, const int64_t column, const int threads) {
  static thread_local Scratch local;
  const DeltaShape& shape = args.shape;
  const StateSpan& span = *piece.span;
  const int64_t channel = 2 * shape.heads_k * shape.dim_k + h * shape.dim_v + column;
  const int64_t columns = std::min(ColumnsAtOnce(piece.rows), shape.dim_v - column);
  const int64_t state = h * shape.dim_k * shape.dim_v + column;
  // Heads are handed out in order to whoever is free.
  const int64_t next = column + columns < shape.dim_v
                           ? state + columns
                           : std::min<int64_t>(h + threads, shape.heads_v - 1) * shape.dim_k * shape.dim_v;
  const auto run = [&](const int64_t begin, const int64_t end) {
    const int64_t slot = piece.slot + begin - piece.begin;
    const int64_t at = h / (shape.heads_v / shape.heads_k) * layout.slots + slot;
    const int64_t row = span.row_begin + begin;
    const auto scan = piece.rows == 1 ? table.delta_token : table.delta_columns;
    scan({.q = layout.q + at * shape.dim_k,
          .k = layout.k + at * shape.dim_k,
          .qk = layout.qk + at,
          .decay = layout.decay + h * layout.slots + slot,
          .beta = layout.beta + h * layout.slots + slot,
          .rows = end - begin,
          .dim_k = shape.dim_k,
          .v = args.qkv.row(row) + channel,
          .v_stride = args.qkv.stride,
          .state = span.recurrent + state,
          .state_stride = shape.dim_v,
          .columns = columns,
          .ahead = span.recurrent + next,
          .out = args.out.row(row) + h * shape.dim_v + column,
          .out_stride = args.out.stride,
          .scratch = local.Floats(shape.dim_k * kMaxDeltaColumns)});
  };
  const auto emit = [&](const EmittedState& to) {
    for (int64_t i = 0; i < shape.dim_k; ++i) {
      const int64_t from = state + i * shape.dim_v;
      std::copy_n(span.recurrent + from, columns, to.recurrent + from);
    }
  };
  ForRowsBetweenEmits(span, piece.begin, piece.begin + piece.rows, run, emit);
}

}  // namespace

void RunDeltaScan(const KernelTable& table, WorkerPool& pool, const DeltaArgs& args, Scratch& prepared) {
  const DeltaShape& shape = args.shape;
  CheckEmits(args.spans);
  for (int64_t done = 0;; done += kRoundTokens) {
    std::vector<Piece> pieces;
    std::vector<int64_t> rows;  // Slot -> row of the batch.
    for (const StateSpan& span : args.spans) {
      if (span.rows <= done) continue;
      const int64_t count = std::min<int64_t>(kRoundTokens, span.rows - done);
      pieces.push_back({&span, done, count, static_cast<int64_t>(rows.size())});
      for (int64_t i = 0; i < count; ++i) rows.push_back(span.row_begin + done + i);
    }
    if (pieces.empty()) return;
    const int64_t slots = static_cast<int64_t>(rows.size());
    const Layout layout = Reserve(shape, slots, prepared);
    const int64_t rows_per_task = std::clamp<int64_t>(slots / (2 * pool.threads()), 1, kRowsPerTask);
    pool.ParallelFor((slots + rows_per_task - 1) / rows_per_task, [&](const int64_t task) {
      for (int64_t i = task * rows_per_task; i < std::min(slots, (task + 1) * rows_per_task); ++i) {
        PrepareRow(table, args, layout, rows[i], i);
      }
    });
    pool.ParallelFor(static_cast<int64_t>(pieces.size()) * shape.heads_v, [&](const int64_t task) {
      const Piece& piece = pieces[task / shape.heads_v];
      for (int64_t column = 0; column < shape.dim_v; column += ColumnsAtOnce(piece.rows)) {
        ScanColumns(table, args, layout, piece, task % shape.heads_v, column, pool.threads());
      }
    });
  }
}

}  // namespace invar::kernels::cpu
