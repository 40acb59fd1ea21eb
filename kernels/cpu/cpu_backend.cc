// Binds the chosen instruction set's table to the Backend face: checks shapes, splits rows over the pool.
#include "kernels/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/causal_conv.h"
#include "kernels/cpu/delta_scan.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/pack.h"
#include "kernels/shared/packing.h"
#include "kernels/shared/shape_limits.h"
#include "kernels/shared/sin_cos.h"

namespace invar::kernels::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& table, const DType activations, WorkerPool& pool) : table_(table), pool_(pool) {
    numerics_ = {.activations = activations, .kv = activations, .backend = "cpu"};
  }

  std::string_view name() const override { return "cpu"; }
  const Numerics& numerics() const override { return numerics_; }
  std::string_view isa() const override { return table_.name; }
  int64_t scratch_bytes() const override { return product_rows_.bytes() + partials_.bytes() + experts_.bytes(); }
  WorkerPool& pool() const override { return pool_; }

  std::optional<ShapeLimit> LimitOf(const AttentionShape& shape) const override {
    return HeadDimLimit(shape, kMaxHeadDim);
  }
  std::optional<ShapeLimit> ConvLimit(const int32_t kernel) const override {
    return ConvKernelLimit(kernel, kMaxConvKernel);
  }

  DType PackedDType(const DType source) const override { return PackedDTypeOf(source, numerics_.activations); }
  int64_t PackedBytes(const int64_t rows, const int64_t cols, const DType packed) const override {
    return PackedMatrixBytes(rows, cols, packed);
  }
  PackedMatrix PackMatrix(const void* source, const DType source_dtype, const int64_t rows, const int64_t cols,
                          void* dest) const override {
    const DType packed = PackedDType(source_dtype);
    PackPanels(source, source_dtype, rows, cols, packed, dest);
    return {dest, packed, rows, cols};
  }
  PageShape KvPageShape(const int32_t kv_heads, const int32_t head_dim) const override {
    return {kv_heads, head_dim, numerics_.kv, DenseOrder::kLanes};
  }

  void Embed(const PackedMatrix& table, std::span<const int32_t> ids, const F32View out) override {
    Check(out.cols == table.cols && out.rows == static_cast<int64_t>(ids.size()), "Embed: shapes agree");
    ForRows(out.rows, table.cols, [&](const int64_t t) {
      Check(ids[t] >= 0 && ids[t] < table.rows, "Embed: token id in the table", ids[t], table.rows);
      GatherRow(table, ids[t], out.row(t));
    });
  }

  void RmsNorm(const ConstF32View x, std::span<const float> weight, const float eps, const Activations out) override {
    Check(x.cols == static_cast<int64_t>(weight.size()) && out.cols == x.cols && out.rows == x.rows,
          "RmsNorm: shapes agree");
    ForRows(x.rows, x.cols, [&](const int64_t t) {
      table_.rms_norm(x.row(t), weight.data(), x.cols, eps, out.row_bytes(t), out.dtype == DType::kBf16);
    });
  }

  void Linear(const Activations& x, const PackedMatrix& weight, std::span<const float> bias, const LinearMode mode,
              const F32View out) override {
    Check(x.cols == weight.cols && out.cols == weight.rows && out.rows == x.rows, "Linear: shapes agree", x.cols,
          weight.cols, out.cols, weight.rows);
    Check(bias.empty() || static_cast<int64_t>(bias.size()) == weight.rows, "Linear: bias has one value an output");
    MatmulJob job{.product = ProductOf(x.dtype, weight.dtype),
                  .a = x.data,
                  .a_stride = x.stride,
                  .rows = x.rows,
                  .weight = &weight,
                  .bias = bias.empty() ? nullptr : bias.data(),
                  .add = mode == LinearMode::kAdd,
                  .out = out.data,
                  .out_stride = out.stride};
    const bool pairs = job.product != Product::kF32;
    if (pairs && (NeedsCopy(table_, x.dtype, x.cols) || x.stride % 2 != 0)) {
      const int64_t element = ProductElementBytes(table_, x.dtype);
      const int64_t stride = ProductStride(x.cols);
      auto* rows = static_cast<std::byte*>(product_rows_.Reserve(x.rows * stride * element));
      ForRows(x.rows, x.cols / 4, [&](const int64_t t) {
        table_.copy_row(x.row_bytes(t), x.cols, x.dtype == DType::kBf16, rows + t * stride * element);
      });
      job.a = rows;
      job.a_stride = stride;
    }
    RunJobs(table_, pool_, {&job, 1});
  }

  void RopeAngles(std::span<const int32_t> positions, std::span<const double> inverse_frequencies, const double factor,
                  const F32View cos, const F32View sin) override {
    ForRows(static_cast<int64_t>(positions.size()), 64 * inverse_frequencies.size(), [&](const int64_t t) {
      for (size_t i = 0; i < inverse_frequencies.size(); ++i) {
        const SinCos angle = SinCosOf(positions[t] * inverse_frequencies[i]);
        cos.row(t)[i] = static_cast<float>(angle.cos * factor);
        sin.row(t)[i] = static_cast<float>(angle.sin * factor);
      }
    });
  }

  void QkvPrepare(const QkvArgs& args) override {
    const AttentionShape& shape = args.shape;
    CheckAttention(shape);
    Check(args.q_out.dtype == numerics_.kv, "QkvPrepare: q has the type of the pages");
    Check(2 * args.cos.cols <= shape.head_dim, "QkvPrepare: rotated dims fit the head");
    for (const KvSpan& span : args.spans) {
      ForRows(span.rows, (shape.heads + 2 * shape.kv_heads) * shape.head_dim * 4, [&](const int64_t r) {
        const int64_t t = span.row_begin + r;
        const int64_t position = span.first_position + r;
        table_.qkv_row({.q = args.q.row(t),
                        .k = args.k.row(t),
                        .v = args.v.row(t),
                        .heads = shape.heads,
                        .kv_heads = shape.kv_heads,
                        .head_dim = shape.head_dim,
                        .q_head_stride = args.q_head_stride,
                        .q_norm = args.q_norm.empty() ? nullptr : args.q_norm.data(),
                        .k_norm = args.k_norm.empty() ? nullptr : args.k_norm.data(),
                        .eps = args.norm_eps,
                        .cos = args.cos.row(t),
                        .sin = args.sin.row(t),
                        .half = args.cos.cols,
                        .bf16 = numerics_.kv == DType::kBf16,
                        .q_out = args.q_out.row_bytes(t),
                        .page = position < span.write_from ? nullptr : span.kv.page(position / kPageTokens),
                        .place = position % kPageTokens});
      });
    }
  }

  void Attention(const AttentionArgs& args) override {
    CheckAttention(args.shape);
    Check(args.q.dtype == numerics_.kv, "Attention: q has the type of the pages");
    RunAttention(table_, pool_, args, numerics_.kv, partials_);
  }

  void CausalConv(const ConvArgs& args) override {
    Check(!ConvLimit(args.kernel), "CausalConv: a kernel this backend takes", args.kernel);
    RunCausalConv(table_, pool_, args);
  }

  void DeltaScan(const DeltaArgs& args) override {
    const DeltaShape& shape = args.shape;
    Check(args.qkv.cols == 2 * shape.heads_k * shape.dim_k + shape.heads_v * shape.dim_v,
          "DeltaScan: q, k and v side by side");
    Check(shape.heads_v % shape.heads_k == 0, "DeltaScan: value heads share key heads evenly");
    RunDeltaScan(table_, pool_, args);
  }

  void GatedRmsNorm(const ConstF32View x, const ConstF32View z, std::span<const float> weight, const float eps,
                    const Activations out) override {
    const int64_t dim = static_cast<int64_t>(weight.size());
    Check(x.cols % dim == 0 && z.cols == x.cols && out.cols == x.cols, "GatedRmsNorm: whole heads");
    ForRows(x.rows, x.cols * 4, [&](const int64_t t) {
      for (int64_t head = 0; head < x.cols; head += dim) {
        table_.gated_rms_norm(x.row(t) + head, z.row(t) + head, weight.data(), dim, eps,
                              out.row_bytes(t) + head * BytesOf(out.dtype), out.dtype == DType::kBf16);
      }
    });
  }

  void SwiGlu(const ConstF32View gate_up, const Activations out) override {
    const int64_t inner = gate_up.cols / 2;
    Check(out.cols == inner, "SwiGlu: half as many columns come out");
    ForRows(gate_up.rows, inner * 4, [&](const int64_t t) {
      table_.swiglu(gate_up.row(t), gate_up.row(t) + inner, inner, out.row_bytes(t), out.dtype == DType::kBf16);
    });
  }

  void Experts(const ExpertsArgs& args) override {
    Check(args.top_k >= 1 && args.top_k <= args.router_logits.cols, "Experts: top_k of all experts", args.top_k);
    Check(
        static_cast<int64_t>(args.gate_up.size()) == args.router_logits.cols && args.down.size() == args.gate_up.size(),
        "Experts: one logit an expert");
    Check(args.gate_up_residual.size() == args.down_residual.size() &&
              (args.down_residual.empty() || args.down_residual.size() == args.down.size()),
          "Experts: residuals of all or of none");
    if (args.x.rows == 0) return;
    RunExperts(table_, pool_, args, numerics_.activations, experts_);
  }

  void AddSigmoidScaled(const ConstF32View x, const ConstF32View gate, const F32View out) override {
    ForRows(x.rows, x.cols,
            [&](const int64_t t) { table_.add_sigmoid_scaled(x.row(t), gate.row(t)[0], x.cols, out.row(t)); });
  }

 private:
  void CheckAttention(const AttentionShape& shape) const {
    Check(!LimitOf(shape), "attention: a shape this backend takes", shape.head_dim);
    Check(shape.heads % shape.kv_heads == 0, "attention: heads share KV heads evenly", shape.heads, shape.kv_heads);
  }

  // Runs work(row) for all rows, several rows a task where one costs little (`cost`: elements touched a row).
  template <typename Work>
  void ForRows(const int64_t rows, const int64_t cost, const Work& work) {
    const int64_t per_task = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cost));
    pool_.ParallelFor((rows + per_task - 1) / per_task, [&](const int64_t task) {
      for (int64_t row = task * per_task; row < std::min(rows, (task + 1) * per_task); ++row) work(row);
    });
  }

  const KernelTable& table_;
  WorkerPool& pool_;
  Numerics numerics_;
  Scratch product_rows_;
  Scratch partials_;
  ExpertScratch experts_;
};

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const BackendOptions& options, WorkerPool& pool) {
  if (options.activations == DType::kF16) {
    return InvalidArgument("the cpu backend computes with bf16 or f32 activations, not f16", "activations");
  }
  StatusOr<const KernelTable*> table = ChooseTable(options.isa);
  if (!table.ok()) return table.status();
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(**table, options.activations, pool));
}

}  // namespace invar::kernels::cpu
