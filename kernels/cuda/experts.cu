// out[t] += sum over the top_k experts e of row t, ascending e, of w_e down_e(silu(gate_e x) * up_e x).
// w = softmax over all experts (ties to the lowest index), divided by the sum of the chosen where asked.
// Rows are grouped by expert on the device: no number of it comes back to the host, so grids cover what could be, and
// blocks without rows end at once. A row's products do not depend on which rows share its expert.
// Order: softmax as in rms_norm.cu over a warp; weights of the chosen ascending; experts ascending, one fma each.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/reduce.cuh"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRoutersPerBlock = 4;

// A warp a row: its top_k experts ascending, and their weights.
__global__ void Route(const ExpertsLaunch args) {
  const int64_t experts = args.router_logits.cols;
  SharedArrays shared(SharedMemory());
  int32_t* taken = shared.Take<int32_t>(kRoutersPerBlock * experts) + Warp() * experts;
  const int64_t t = BlockX() * kRoutersPerBlock + Warp();
  if (t >= args.router_logits.rows) return;
  const float* logits = Row(args.router_logits, t);
  float largest = logits[0];
  for (int64_t e = Lane(); e < experts; e += kWarpLanes) {
    taken[e] = 0;
    largest = logits[e] > largest ? logits[e] : largest;
  }
  largest = WarpMax(largest);
  float total = 0.0F;
  for (int64_t e = Lane(); e < experts; e += kWarpLanes) total += Exp(logits[e] - largest);
  total = WarpSum(total);
  // A mark is its own lane's until all are set.
  for (int32_t i = 0; i < args.top_k; ++i) {
    auto best = static_cast<int32_t>(experts);  // None.
    float best_logit = 0.0F;
    for (int64_t e = Lane(); e < experts; e += kWarpLanes) {
      if (taken[e] != 0 || (best < experts && !(logits[e] > best_logit))) continue;
      best = static_cast<int32_t>(e);
      best_logit = logits[e];
    }
    for (int away = kWarpLanes / 2; away > 0; away /= 2) {
      const int32_t other = FromLaneXor(best, away);
      const float other_logit = FromLaneXor(best_logit, away);
      if (other >= experts) continue;
      if (best >= experts || other_logit > best_logit || (other_logit == best_logit && other < best)) {
        best = other;
        best_logit = other_logit;
      }
    }
    if (best % kWarpLanes == Lane()) taken[best] = 1;
  }
  SyncWarp();
  if (Lane() != 0) return;
  float chosen_total = 0.0F;
  int32_t count = 0;
  for (int64_t e = 0; e < experts && count < args.top_k; ++e) {
    if (taken[e] == 0) continue;
    const float weight = Exp(logits[e] - largest) / total;
    args.scratch.chosen[t * args.top_k + count] = static_cast<int32_t>(e);
    args.scratch.weights[t * args.top_k + count] = weight;
    chosen_total += weight;
    ++count;
  }
  if (!args.normalize_top_k) return;
  for (int32_t i = 0; i < count; ++i) args.scratch.weights[t * args.top_k + i] /= chosen_total;
}

// One block: where each expert's slots begin, and which slot a choice has, rows ascending inside an expert.
__global__ void GroupByExpert(const ExpertsLaunch args) {
  const int64_t experts = args.router_logits.cols;
  const int64_t choices = args.x.rows * args.top_k;
  SharedArrays shared(SharedMemory());
  int32_t* counts = shared.Take<int32_t>(experts);
  for (int64_t e = Thread(); e < experts; e += kThreads) {
    int32_t count = 0;
    for (int64_t i = 0; i < choices; ++i) count += args.scratch.chosen[i] == e ? 1 : 0;
    counts[e] = count;
  }
  SyncBlock();
  for (int64_t e = Thread(); e < experts; e += kThreads) {
    int32_t slot = 0;
    for (int64_t before = 0; before < e; ++before) slot += counts[before];
    args.scratch.first_slot[e] = slot;
    if (e + 1 == experts) args.scratch.first_slot[experts] = slot + counts[e];
    for (int64_t i = 0; i < choices; ++i) {
      if (args.scratch.chosen[i] != e) continue;
      args.scratch.slots[i] = slot;
      args.scratch.slot_rows[slot] = static_cast<int32_t>(i / args.top_k);
      ++slot;
    }
  }
}

// Products of every expert's slots with one of its matrices; the expert is the grid's z.
struct GroupedProduct {
  const DeviceExpert* experts = nullptr;
  bool residual = false;
  const int32_t* first_slot = nullptr;
  const int32_t* slot_rows = nullptr;  // Row of x of a slot; null: the slot itself.
  ProductTile tile;                    // Of all slots together.
};

template <typename Tile>
__global__ void __launch_bounds__(kProductThreads) GroupedTiles(const GroupedProduct args) {
  const int64_t expert = BlockZ();
  const int64_t first = args.first_slot[expert];
  const int64_t rows = args.first_slot[expert + 1] - first;
  const int64_t row_begin = BlockY() * Tile::kRows;
  ProductTile product = args.tile;
  product.weight = args.residual ? args.experts[expert].residual : args.experts[expert].matrix;
  if (row_begin >= rows || product.weight == nullptr) return;  // The whole block leaves.
  product.rows = rows;
  product.out += first * product.out_stride;
  if (args.slot_rows != nullptr) {
    product.x_rows = args.slot_rows + first;
  } else {
    product.x = static_cast<const std::byte*>(product.x) + first * product.x_stride * BytesOf(product.x_dtype);
  }
  SharedArrays shared(SharedMemory());
  Tile::Run(product, Tile::Take(shared), row_begin, BlockX() * Tile::kColumns);
}

template <typename Tile>
void LaunchGrouped(const GroupedProduct& product, const int64_t experts, const int64_t tokens, const Stream stream) {
  // An expert has at most one row of every token.
  Launch("experts_product", GroupedTiles<Tile>,
         {{CeilDiv(product.tile.n, Tile::kColumns), CeilDiv(tokens, Tile::kRows), experts},
          kProductThreads,
          SharedBytesOf<Tile>()},
         stream, product);
}

void LaunchGrouped(const GroupedProduct& product, const int64_t experts, const int64_t tokens, const Stream stream) {
  if (product.tile.x_dtype != DType::kBf16 || product.tile.weight_dtype != DType::kBf16) {
    return LaunchGrouped<FmaTile>(product, experts, tokens, stream);
  }
  if (tokens <= kFewRows) return LaunchGrouped<FewRowsTile>(product, experts, tokens, stream);
  LaunchGrouped<ManyRowsTile>(product, experts, tokens, stream);
}

// A thread an element of the output.
__global__ void Combine(const ExpertsLaunch args) {
  const int64_t index = BlockX() * kThreads + Thread();
  if (index >= args.out.rows * args.out.cols) return;
  const int64_t t = index / args.out.cols;
  const int64_t i = index % args.out.cols;
  float sum = Row(args.out, t)[i];
  for (int64_t choice = t * args.top_k; choice < (t + 1) * args.top_k; ++choice) {
    sum = Fma(args.scratch.weights[choice], args.scratch.down[args.scratch.slots[choice] * args.out.cols + i], sum);
  }
  Row(args.out, t)[i] = sum;
}

}  // namespace

void Experts(const ExpertsLaunch& args, const Stream stream) {
  const int64_t tokens = args.x.rows;
  const int64_t slots = tokens * args.top_k;
  const int64_t experts = args.router_logits.cols;
  SharedArrays routers(nullptr);
  routers.Take<int32_t>(kRoutersPerBlock * experts);
  Launch("experts_route", Route, {{CeilDiv(tokens, kRoutersPerBlock)}, kRoutersPerBlock * kWarpLanes, routers.bytes()},
         stream, args);
  SharedArrays groups(nullptr);
  groups.Take<int32_t>(experts);
  Launch("experts_group", GroupByExpert, {{1}, kThreads, groups.bytes()}, stream, args);

  // out [slots, n] = x matrix^T, then += x residual^T.
  const auto multiply = [&](const Activations& x, const int32_t* slot_rows, const DeviceExpert* matrices, float* out,
                            const int64_t n) {
    for (const bool residual : {false, true}) {
      if (residual && !args.has_residuals) continue;
      LaunchGrouped({.experts = matrices,
                     .residual = residual,
                     .first_slot = args.scratch.first_slot,
                     .slot_rows = slot_rows,
                     .tile = {.x = x.data,
                              .x_dtype = x.dtype,
                              .x_stride = x.stride,
                              .x_rows = nullptr,
                              .rows = slots,
                              .weight = nullptr,
                              .weight_dtype = residual ? args.residual_dtype : args.dtype,
                              .n = n,
                              .k = x.cols,
                              .bias = nullptr,
                              .add = residual,
                              .out = out,
                              .out_stride = n}},
                    experts, tokens, stream);
    }
  };
  const Activations inner{args.scratch.inner, args.x.dtype, slots, args.inner, args.inner};
  multiply(args.x, args.scratch.slot_rows, args.gate_up, args.scratch.gate_up, 2 * args.inner);
  SwiGlu({args.scratch.gate_up, slots, 2 * args.inner, 2 * args.inner}, inner, stream);
  multiply(inner, nullptr, args.down, args.scratch.down, args.out.cols);
  Launch("experts_combine", Combine, {{CeilDiv(args.out.rows * args.out.cols, kThreads)}, kThreads, 0}, stream, args);
}

}  // namespace invar::kernels::cuda
