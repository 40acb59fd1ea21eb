// One fork a round of at most 512 tokens a span. A task is a head of a span: its q, k and gates of every token, close
// together (rows a power of two apart would share cache sets), then the recurrence over them, so that what a core has
// made stays with it; of a single token, a thread's share of the heads. Value heads that share a key head prepare it
// each: some hundredths of their work. Rounds bound the scratch; the state carries over exactly. Neighbouring tasks lie
// in different parts of the state, one a thread, so that a thread goes on where it stopped: memory is read in longer
// runs.
#include "kernels/cpu/delta_scan.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/scratch.h"
#include "kernels/shared/emit.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kRoundTokens = 512;

// Part of a span that is handled in one round.
struct Piece {
  const StateSpan* span;
  int64_t begin;  // Row of the span.
  int64_t rows;

  int64_t row(const int64_t at) const { return span->row_begin + begin + at; }  // Of the batch.
};

// Heads of a piece that one thread takes: several where it has one row, whose states are then brought without a pause.
struct Task {
  const Piece* piece;
  int64_t head;
  int64_t heads;  // 1, or up to kMaxTokenHeads.
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

std::vector<Task> CutTasks(const std::vector<Piece>& pieces, const DeltaShape& shape, const int threads) {
  std::vector<Task> tasks;
  for (const Piece& piece : pieces) {
    const int64_t heads =
        piece.rows > 1 ? 1 : std::min<int64_t>((shape.heads_v + threads - 1) / threads, kMaxTokenHeads);
    for (int64_t first = 0; first < shape.heads_v; first += heads) {
      const int64_t head = piece.rows > 1 ? HeadOf(shape, threads, first) : first;
      tasks.push_back({&piece, head, std::min(heads, shape.heads_v - first)});
    }
  }
  return tasks;
}

const float* StateOf(const Task& task, const DeltaShape& shape) {
  return task.piece->span->recurrent + task.head * shape.dim_k * shape.dim_v;
}

// For `rows` tokens of a head, or one of so many heads.
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

void PrepareKeys(const KernelTable& table, const DeltaArgs& args, const Piece& piece, const int64_t h,
                 const HeadRows& head) {
  const DeltaShape& shape = args.shape;
  const int64_t key_head = h / (shape.heads_v / shape.heads_k);
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

// Rows of `head` from the at-th on, for the columns of value head `h` from `column` on.
DeltaColumns ColumnsAt(const DeltaArgs& args, const Piece& piece, const int64_t at, const int64_t rows, const int64_t h,
                       const int64_t column, const int64_t columns, const HeadRows& head) {
  const DeltaShape& shape = args.shape;
  const int64_t row = piece.row(at);
  return {.q = head.q + at * shape.dim_k,
          .k = head.k + at * shape.dim_k,
          .qk = head.qk + at,
          .decay = head.decay + at,
          .beta = head.beta + at,
          .rows = rows,
          .dim_k = shape.dim_k,
          .v = args.qkv.row(row) + 2 * shape.heads_k * shape.dim_k + h * shape.dim_v + column,
          .v_stride = args.qkv.stride,
          .state = piece.span->recurrent + h * shape.dim_k * shape.dim_v + column,
          .state_stride = shape.dim_v,
          .columns = columns,
          .ahead = nullptr,
          .out = args.out.row(row) + h * shape.dim_v + column,
          .out_stride = args.out.stride,
          .scratch = head.columns};
}

// Copies columns of a head to where the state after its last row so far is kept.
void Emit(const DeltaShape& shape, const StateSpan& span, const EmittedState& to, const int64_t h, const int64_t column,
          const int64_t columns) {
  for (int64_t i = 0; i < shape.dim_k; ++i) {
    const int64_t from = (h * shape.dim_k + i) * shape.dim_v + column;
    std::copy_n(span.recurrent + from, columns, to.recurrent + from);
  }
}

// One row of the task's heads.
void ScanToken(const KernelTable& table, const DeltaArgs& args, const Task& task) {
  const DeltaShape& shape = args.shape;
  const Piece& piece = *task.piece;
  const HeadRows rows = Reserve(table, shape, task.heads);
  const auto of_head = [&](const int64_t n) {
    HeadRows head = rows;
    head.q += n * shape.dim_k;
    head.k += n * shape.dim_k;
    head.qk += n;
    head.beta += n;
    head.decay += n;
    return head;
  };
  for (int64_t n = 0; n < task.heads; ++n) PrepareKeys(table, args, piece, task.head + n, of_head(n));
  const int64_t row = piece.row(0);
  table.delta_gates(args.b.row(row) + task.head, args.a.row(row) + task.head, args.a_log.data() + task.head,
                    args.dt_bias.data() + task.head, task.heads, rows.beta, rows.decay);
  for (int64_t column = 0; column < shape.dim_v; column += kMaxTokenColumns) {
    const int64_t columns = std::min<int64_t>(kMaxTokenColumns, shape.dim_v - column);
    DeltaColumns heads[kMaxTokenHeads];
    for (int64_t n = 0; n < task.heads; ++n) {
      heads[n] = ColumnsAt(args, piece, 0, 1, task.head + n, column, columns, of_head(n));
    }
    table.delta_tokens(heads, task.heads);
    ForRowsBetweenEmits(
        *piece.span, piece.begin, piece.begin + 1, [](int64_t, int64_t) {},
        [&](const EmittedState& to) {
          for (int64_t n = 0; n < task.heads; ++n) Emit(shape, *piece.span, to, task.head + n, column, columns);
        });
  }
}

// All rows of the task's one head. `next`: the state that the thread is likely to go on with.
void ScanRows(const KernelTable& table, const DeltaArgs& args, const Task& task, const float* next) {
  const DeltaShape& shape = args.shape;
  const Piece& piece = *task.piece;
  const HeadRows head = Reserve(table, shape, piece.rows);
  PrepareKeys(table, args, piece, task.head, head);
  PrepareGates(table, args, piece, task.head, head);
  for (int64_t column = 0; column < shape.dim_v; column += table.delta_columns_max) {
    const int64_t columns = std::min<int64_t>(table.delta_columns_max, shape.dim_v - column);
    const auto run = [&](const int64_t begin, const int64_t end) {
      DeltaColumns scan = ColumnsAt(args, piece, begin - piece.begin, end - begin, task.head, column, columns, head);
      scan.ahead = column + columns < shape.dim_v ? scan.state + columns : next;
      table.delta_columns(scan);
    };
    const auto emit = [&](const EmittedState& to) { Emit(shape, *piece.span, to, task.head, column, columns); };
    ForRowsBetweenEmits(*piece.span, piece.begin, piece.begin + piece.rows, run, emit);
  }
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
    const std::vector<Task> tasks = CutTasks(pieces, shape, pool.threads());
    const auto count = static_cast<int64_t>(tasks.size());
    pool.ParallelFor(count, [&](const int64_t i) {
      const Task& task = tasks[i];
      if (task.piece->rows == 1) {
        ScanToken(table, args, task);
      } else {  // Tasks are handed out in order to whoever is free.
        ScanRows(table, args, task, StateOf(tasks[std::min(i + pool.threads(), count - 1)], shape));
      }
    });
  }
}

}  // namespace invar::kernels::cpu
