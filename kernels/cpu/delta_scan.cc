// One fork a round of at most 512 tokens a span. A task is a head of a span: its q, k and gates of every token, close
// together (rows a power of two apart would share cache sets), then the recurrence over them, so that what a core has
// made stays with it. Value heads that share a key head prepare it each: some hundredths of their work. Rounds bound
// the scratch; the state carries over exactly. Neighbouring tasks lie in different parts of the state, one a thread, so
// that a thread goes on where it stopped: memory is read in longer runs.
#include "kernels/cpu/delta_scan.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/scratch.h"
#include "kernels/emit.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kRoundTokens = 512;

// State columns of one call for a piece of so many rows.
int64_t ColumnsAtOnce(const KernelTable& table, const int64_t rows) {
  return rows == 1 ? kMaxTokenColumns : table.delta_columns_max;
}

// Part of a span handled in one round.
struct Piece {
  const StateSpan* span;
  int64_t begin;  // Row of the span.
  int64_t rows;

  int64_t row(const int64_t at) const { return span->row_begin + begin + at; }  // Of the batch.
};

// The head of the n-th task of a piece. Where threads cannot share the heads evenly, in order.
int64_t HeadOf(const DeltaShape& shape, const int threads, const int64_t n) {
  const int64_t parts = shape.heads_v % threads == 0 ? threads : 1;
  return n % parts * (shape.heads_v / parts) + n / parts;
}

// What the tokens of a piece bring to one head, and what its recurrence works in.
struct HeadRows {
  float* q;  // [rows, dim_k]
  float* k;
  float* qk;  // [rows]
  float* beta;
  float* decay;
  float* columns;  // [dim_k, delta_columns_max]
};

HeadRows Reserve(const KernelTable& table, const DeltaShape& shape, const int64_t rows) {
  static thread_local Scratch scratch;
  const int64_t keys = rows * shape.dim_k;
  const int64_t padded = (rows + 15) / 16 * 16;
  const int64_t columns = int64_t{shape.dim_k} * table.delta_columns_max;
  float* const memory = scratch.Floats(columns + 2 * keys + 3 * padded);
  float* const gates = memory + columns + 2 * keys;
  return {.q = memory + columns,
          .k = memory + columns + keys,
          .qk = gates,
          .beta = gates + padded,
          .decay = gates + 2 * padded,
          .columns = memory};
}

void PrepareGates(const KernelTable& table, const DeltaArgs& args, const Piece& piece, const int64_t h,
                  const HeadRows& head) {
  constexpr int64_t kAtOnce = 16;
  float b[kAtOnce], a[kAtOnce], a_log[kAtOnce], dt_bias[kAtOnce];
  std::fill_n(a_log, kAtOnce, args.a_log[h]);
  std::fill_n(dt_bias, kAtOnce, args.dt_bias[h]);
  for (int64_t t = 0; t < piece.rows; t += kAtOnce) {
    const int64_t n = std::min(kAtOnce, piece.rows - t);
    for (int64_t i = 0; i < n; ++i) {
      b[i] = args.b.row(piece.row(t + i))[h];
      a[i] = args.a.row(piece.row(t + i))[h];
    }
    table.delta_gates(b, a, a_log, dt_bias, n, head.beta + t, head.decay + t);
  }
}

void Prepare(const KernelTable& table, const DeltaArgs& args, const Piece& piece, const int64_t h,
             const HeadRows& head) {
  const DeltaShape& shape = args.shape;
  const int64_t key_head = h / (shape.heads_v / shape.heads_k);
  PrepareGates(table, args, piece, h, head);
  const float* const row = args.qkv.row(piece.row(0));
  table.delta_prepare({.q = row + key_head * shape.dim_k,
                       .k = row + (shape.heads_k + key_head) * shape.dim_k,
                       .stride = args.qkv.stride,
                       .rows = piece.rows,
                       .dim_k = shape.dim_k,
                       .q_out = head.q,
                       .k_out = head.k,
                       .qk = head.qk});
}

// `next_head`: the state that the thread is likely to go on with.
void ScanColumns(const KernelTable& table, const DeltaArgs& args, const Piece& piece, const int64_t h,
                 const int64_t column, const float* next_head, const HeadRows& head) {
  const DeltaShape& shape = args.shape;
  const StateSpan& span = *piece.span;
  const int64_t channel = 2 * shape.heads_k * shape.dim_k + h * shape.dim_v + column;
  const int64_t columns = std::min(ColumnsAtOnce(table, piece.rows), shape.dim_v - column);
  const int64_t state = h * shape.dim_k * shape.dim_v + column;
  const float* const ahead = column + columns < shape.dim_v ? span.recurrent + state + columns : next_head;
  const auto run = [&](const int64_t begin, const int64_t end) {
    const int64_t at = begin - piece.begin;
    const int64_t row = piece.row(at);
    const auto scan = piece.rows == 1 ? table.delta_token : table.delta_columns;
    scan({.q = head.q + at * shape.dim_k,
          .k = head.k + at * shape.dim_k,
          .qk = head.qk + at,
          .decay = head.decay + at,
          .beta = head.beta + at,
          .rows = end - begin,
          .dim_k = shape.dim_k,
          .v = args.qkv.row(row) + channel,
          .v_stride = args.qkv.stride,
          .state = span.recurrent + state,
          .state_stride = shape.dim_v,
          .columns = columns,
          .ahead = ahead,
          .out = args.out.row(row) + h * shape.dim_v + column,
          .out_stride = args.out.stride,
          .scratch = head.columns});
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

void RunDeltaScan(const KernelTable& table, WorkerPool& pool, const DeltaArgs& args) {
  const DeltaShape& shape = args.shape;
  CheckEmits(args.spans);
  for (int64_t done = 0;; done += kRoundTokens) {
    std::vector<Piece> pieces;
    for (const StateSpan& span : args.spans) {
      if (span.rows > done) pieces.push_back({&span, done, std::min<int64_t>(kRoundTokens, span.rows - done)});
    }
    if (pieces.empty()) return;
    const auto tasks = static_cast<int64_t>(pieces.size()) * shape.heads_v;
    const auto piece_of = [&](const int64_t task) -> const Piece& { return pieces[task / shape.heads_v]; };
    const auto head_of = [&](const int64_t task) { return HeadOf(shape, pool.threads(), task % shape.heads_v); };
    pool.ParallelFor(tasks, [&](const int64_t task) {
      const Piece& piece = piece_of(task);
      const int64_t h = head_of(task);
      // Tasks are handed out in order to whoever is free.
      const int64_t next = std::min<int64_t>(task + pool.threads(), tasks - 1);
      const float* const next_head = piece_of(next).span->recurrent + head_of(next) * shape.dim_k * shape.dim_v;
      const HeadRows head = Reserve(table, shape, piece.rows);
      Prepare(table, args, piece, h, head);
      for (int64_t column = 0; column < shape.dim_v; column += ColumnsAtOnce(table, piece.rows)) {
        ScanColumns(table, args, piece, h, column, next_head, head);
      }
    });
  }
}

}  // namespace invar::kernels::cpu
