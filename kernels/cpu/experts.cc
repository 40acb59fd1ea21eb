// Rows are grouped by expert, so an expert's weights are read once for all its rows; a row's products do not depend on
// which rows share its expert, and its experts are added in ascending order.
#include "kernels/cpu/experts.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/matmul.h"

namespace invar::kernels::cpu {
namespace {

struct Choice {
  int64_t row;
  int32_t expert;
  float weight;
  int64_t slot;  // Place among all choices, grouped by expert.
};

// The top_k experts of one row, ascending, with their weights.
void Route(const KernelTable& table, const ExpertsArgs& args, const int64_t row, Choice* choices) {
  const int64_t count = args.router_logits.cols;
  const float* logits = args.router_logits.row(row);
  std::vector<float> weights(count);
  table.softmax(logits, count, weights.data());
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const auto better = [logits](const int32_t a, const int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + args.top_k, order.end(), better);
  std::sort(order.begin(), order.begin() + args.top_k);
  float total = 0.0F;
  for (int32_t i = 0; i < args.top_k; ++i) total += weights[order[i]];
  for (int32_t i = 0; i < args.top_k; ++i) {
    const float weight = weights[order[i]];
    choices[i] = {row, order[i], args.normalize_top_k ? weight / total : weight, 0};
  }
}

struct Group {
  int32_t expert;
  int64_t first_slot;
  int64_t rows;
};

// Gives every choice its slot; groups in ascending expert order.
std::vector<Group> GroupByExpert(std::vector<Choice>& choices, const int64_t experts) {
  std::vector<int64_t> counts(experts, 0);
  for (const Choice& choice : choices) ++counts[choice.expert];
  std::vector<Group> groups;
  std::vector<int64_t> next(experts, 0);
  int64_t slot = 0;
  for (int64_t e = 0; e < experts; ++e) {
    next[e] = slot;
    if (counts[e] > 0) groups.push_back({static_cast<int32_t>(e), slot, counts[e]});
    slot += counts[e];
  }
  for (Choice& choice : choices) choice.slot = next[choice.expert]++;
  return groups;
}

}  // namespace

void RunExperts(const KernelTable& table, WorkerPool& pool, const ExpertsArgs& args, const DType activations,
                ExpertScratch& scratch) {
  const int64_t tokens = args.x.rows;
  const int64_t hidden = args.x.cols;
  const int64_t inner = args.gate_up[0].rows / 2;
  const bool bf16 = activations == DType::kBf16;
  const int64_t element = ProductElementBytes(table, activations);
  std::vector<Choice> choices(tokens * args.top_k);
  pool.ParallelFor(tokens, [&](const int64_t t) { Route(table, args, t, choices.data() + t * args.top_k); });
  const std::vector<Group> groups = GroupByExpert(choices, args.router_logits.cols);
  const int64_t slots = static_cast<int64_t>(choices.size());

  auto* rows = static_cast<std::byte*>(scratch.rows.Reserve(slots * ProductStride(hidden) * element));
  auto* inner_rows = static_cast<std::byte*>(scratch.inner.Reserve(slots * ProductStride(inner) * element));
  float* gate_up = scratch.hidden.Floats(slots * 2 * inner);
  float* down = scratch.output.Floats(slots * args.out.cols);
  pool.ParallelFor(tokens, [&](const int64_t t) {
    for (int32_t i = 0; i < args.top_k; ++i) {
      const int64_t slot = choices[t * args.top_k + i].slot;
      table.copy_row(args.x.row_bytes(t), hidden, bf16, rows + slot * ProductStride(hidden) * element);
    }
  });
  // out [slots, columns] = a x matrix, then + a x residual, a fork each.
  const auto multiply = [&](const std::span<const PackedMatrix> matrices, const std::span<const PackedMatrix> residuals,
                            const std::byte* a, const int64_t k, float* out, const int64_t columns) {
    std::vector<MatmulJob> jobs;
    for (const bool add : {false, true}) {
      const std::span<const PackedMatrix> weights = add ? residuals : matrices;
      if (weights.empty()) continue;
      jobs.clear();
      for (const Group& group : groups) {
        const PackedMatrix& weight = weights[group.expert];
        if (weight.data == nullptr) continue;
        jobs.push_back({.product = ProductOf(activations, weight.dtype),
                        .a = a + group.first_slot * ProductStride(k) * element,
                        .a_stride = ProductStride(k),
                        .rows = group.rows,
                        .weight = &weight,
                        .add = add,
                        .out = out + group.first_slot * columns,
                        .out_stride = columns});
      }
      if (!jobs.empty()) RunJobs(table, pool, jobs);
    }
  };
  multiply(args.gate_up, args.gate_up_residual, rows, hidden, gate_up, 2 * inner);
  pool.ParallelFor(slots, [&](const int64_t slot) {
    static thread_local Scratch local;
    void* rounded = local.Floats(inner);
    table.swiglu(gate_up + slot * 2 * inner, gate_up + slot * 2 * inner + inner, inner, rounded, bf16);
    table.copy_row(rounded, inner, bf16, inner_rows + slot * ProductStride(inner) * element);
  });
  multiply(args.down, args.down_residual, inner_rows, inner, down, args.out.cols);
  pool.ParallelFor(tokens, [&](const int64_t t) {
    for (int32_t i = 0; i < args.top_k; ++i) {
      const Choice& choice = choices[t * args.top_k + i];
      table.add_scaled(down + choice.slot * args.out.cols, choice.weight, args.out.cols, args.out.row(t));
    }
  });
}

}  // namespace invar::kernels::cpu
