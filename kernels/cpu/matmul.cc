// A task is a few panels x at most kBlockRows rows, big enough (a few microseconds) that handing it out costs nothing.
// Tasks are handed out one by one in order; neighbours in that order lie in different regions of the matrix, one a
// thread, so that a thread's next task mostly continues where its last one ended: its first lines are prefetched then.
#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/pack.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kTaskProducts = 1 << 18;  // Multiply-adds a task should have at least: about 5 us.
// Of few rows, bound by memory: 512 KiB of weights, since handing out panels of 128 costs 5 % of reading them and
// breaks a thread's way through memory; but so many tasks a thread that none ends much later than the others.
constexpr int64_t kReadingRows = 6;
constexpr int64_t kReadingProducts = 1 << 20;
constexpr int64_t kReadingTasksPerThread = 8;

struct Cut {
  int64_t first_task;
  int64_t panels_per_task;
  int64_t panel_tasks;  // Tasks for one block of rows.
  int64_t regions;
  int64_t block_rows;
};

// Rows of a block. Few and large blocks, since each widens the weights anew (matmul_inl.h), but enough tasks for all
// threads, and no more rows than a second-level cache holds over all panels; of nearly equal height, in whole tiles
// of 6.
int64_t BlockRows(const int64_t rows, const int64_t cols, const int64_t panels, const int64_t threads) {
  constexpr int64_t kTasksPerThread = 4;
  constexpr int64_t kSmallBlockRows = 90;
  constexpr int64_t kCachedBytes = 3 << 19;
  const int64_t highest =
      std::clamp<int64_t>(kCachedBytes / (cols * int64_t{sizeof(float)}), kSmallBlockRows, kBlockRows);
  const int64_t fewest = (rows + highest - 1) / highest;
  const int64_t most = std::max(fewest, (rows + kSmallBlockRows - 1) / kSmallBlockRows);
  const int64_t blocks = std::clamp((kTasksPerThread * threads + panels - 1) / panels, fewest, most);
  return std::min<int64_t>(kBlockRows, (rows + blocks * 6 - 1) / (blocks * 6) * 6);
}

Cut CutJob(const MatmulJob& job, const int64_t first_task, const int64_t threads) {
  const int64_t panels = (job.weight->rows + kPanelColumns - 1) / kPanelColumns;
  const int64_t block_rows = BlockRows(std::max<int64_t>(job.rows, 1), job.weight->cols, panels, threads);
  const int64_t rows = std::min(job.rows, block_rows);
  // A panel is also a read from memory: count it like four rows at least.
  const int64_t cost = job.weight->cols * kPanelColumns * std::max<int64_t>(rows, 4);
  int64_t per_task = std::clamp<int64_t>(kTaskProducts / cost, 1, panels);
  if (rows <= kReadingRows) {
    const int64_t most = std::max<int64_t>(per_task, panels / (kReadingTasksPerThread * threads));
    per_task = std::clamp<int64_t>(kReadingProducts / cost, 1, most);
  }
  const int64_t tasks = (panels + per_task - 1) / per_task;
  return {first_task, per_task, tasks, std::min(threads, tasks), block_rows};
}

// Which of the panel tasks comes at place `place`: regions of nearly equal size, the larger ones first.
int64_t PanelTaskAt(const Cut& cut, const int64_t place) {
  const int64_t region = place % cut.regions;
  const int64_t size = cut.panel_tasks / cut.regions;
  return region * size + std::min(region, cut.panel_tasks % cut.regions) + place / cut.regions;
}

void RunTask(const KernelTable& table, const MatmulJob& job, const Cut& cut, const int64_t task) {
  const PackedMatrix& weight = *job.weight;
  const int64_t first_row = task / cut.panel_tasks * cut.block_rows;
  const int64_t first_panel = PanelTaskAt(cut, task % cut.panel_tasks) * cut.panels_per_task;
  const int64_t panels = (weight.rows + kPanelColumns - 1) / kPanelColumns;
  const int64_t end_panel = std::min(first_panel + cut.panels_per_task, panels);
  const int64_t element = job.product == Product::kBf16 && !table.expands ? 2 : 4;
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    const int64_t column = panel * kPanelColumns;
    table.panel_product(
        {.product = job.product,
         .a = static_cast<const std::byte*>(job.a) + first_row * job.a_stride * element,
         .a_stride = job.a_stride,
         .rows = std::min(cut.block_rows, job.rows - first_row),
         .panel = static_cast<const std::byte*>(weight.data) + panel * PackedPanelBytes(weight.cols, weight.dtype),
         .k = weight.cols,
         .columns = std::min<int64_t>(kPanelColumns, weight.rows - column),
         .bias = job.bias != nullptr ? job.bias + column : nullptr,
         .add = job.add,
         .out = job.out + first_row * job.out_stride + column,
         .out_stride = job.out_stride});
  }
}

}  // namespace

Product ProductOf(const DType activations, const DType weight) {
  if (weight == DType::kF32) {
    Check(activations == DType::kF32, "f32 weights meet f32 activations");
    return Product::kF32;
  }
  return activations == DType::kBf16 ? Product::kBf16 : Product::kWiden;
}

// 16 more than needed: rows a power of two apart would share the same few cache sets.
int64_t ProductStride(const int64_t cols) { return (cols + 1) / 2 * 2 + 16; }

int64_t ProductElementBytes(const KernelTable& table, const DType activations) {
  return activations == DType::kBf16 && !table.expands ? 2 : 4;
}

bool NeedsCopy(const KernelTable& table, const DType activations, const int64_t cols) {
  return cols % 2 != 0 || (activations == DType::kBf16 && table.expands);
}

void RunJobs(const KernelTable& table, WorkerPool& pool, std::span<const MatmulJob> jobs) {
  std::vector<Cut> cuts;
  int64_t tasks = 0;
  for (const MatmulJob& job : jobs) {
    cuts.push_back(CutJob(job, tasks, pool.threads()));
    tasks += cuts.back().panel_tasks * ((job.rows + cuts.back().block_rows - 1) / cuts.back().block_rows);
  }
  pool.ParallelFor(tasks, [&](const int64_t task) {
    const auto after = std::upper_bound(cuts.begin(), cuts.end(), task,
                                        [](const int64_t t, const Cut& cut) { return t < cut.first_task; });
    const size_t index = static_cast<size_t>(after - cuts.begin()) - 1;
    RunTask(table, jobs[index], cuts[index], task - cuts[index].first_task);
  });
}

}  // namespace invar::kernels::cpu
