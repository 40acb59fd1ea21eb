// Checks shapes, sends what kernels need beside their inputs (spans, page tables, tasks), and launches. Only what the
// host is about to read is waited for.
#include "kernels/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/judged_products.h"
#include "kernels/cuda/plan_attention.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/row_chooser.h"
#include "kernels/cuda/upload.h"
#include "kernels/shared/emit.h"
#include "kernels/shared/packing.h"
#include "kernels/shared/shape_limits.h"

namespace invar::kernels::cuda {
namespace {

AttentionShapeArgs ShapeArgs(const AttentionShape& shape) {
  return {shape.heads, shape.kv_heads, shape.head_dim, shape.window, shape.scale};
}

// The span of every row of a batch; -1: of none.
template <typename Span>
void FillRowSpans(const std::span<const Span> spans, const int64_t rows, int32_t* row_spans) {
  std::fill_n(row_spans, rows, -1);
  for (size_t s = 0; s < spans.size(); ++s) {
    Check(spans[s].row_begin >= 0 && spans[s].row_begin + spans[s].rows <= rows, "a span's rows are in the batch",
          spans[s].row_begin, spans[s].rows, rows);
    std::fill_n(row_spans + spans[s].row_begin, spans[s].rows, static_cast<int32_t>(s));
  }
}

// Spans of attention and their page tables.
class KvUpload {
 public:
  KvUpload(Upload& upload, const std::span<const KvSpan> spans) : upload_(upload), spans_(spans) {
    array_ = upload.Space<DeviceKvSpan>(static_cast<int64_t>(spans.size()));
    for (const KvSpan& span : spans) tables_.push_back(upload.SpaceFor(span.kv.pages));
  }
  void Fill(const PageShape& page) {
    for (size_t s = 0; s < spans_.size(); ++s) {
      const KvSpan& span = spans_[s];
      const KvBody& body = span.kv.body;
      upload_.Fill(tables_[s], span.kv.pages);
      DeviceKvSpan& to = upload_.at(array_)[s];
      to = {.row_begin = span.row_begin,
            .rows = span.rows,
            .first_position = span.first_position,
            .write_from = span.write_from,
            .arena = span.kv.arena,
            .page_stride_bytes = span.kv.page_stride_bytes,
            .layer_offset_bytes = span.kv.layer_offset_bytes,
            .pages = upload_.there(tables_[s]),
            .body = body.bytes,
            .body_pages = body.pages,
            .body_page_bytes = EncodedPageBytes(body.encoding, page),
            .log_degrees = body.log_degrees};
      if (body.encoding == KvEncoding::kDense) continue;
      to.layout = EncodedHead(body.encoding, page.head_dim);
      to.codes = CodesOf(body.encoding);
    }
  }
  const DeviceKvSpan* there() const { return upload_.there(array_); }

 private:
  Upload& upload_;
  std::span<const KvSpan> spans_;
  Upload::Array<DeviceKvSpan> array_;
  std::vector<Upload::Array<int32_t>> tables_;
};

// Spans of a recurrence and the states they emit.
class StateUpload {
 public:
  StateUpload(Upload& upload, const std::span<const StateSpan> spans) : upload_(upload), spans_(spans) {
    int64_t emits = 0;
    for (const StateSpan& span : spans) emits += static_cast<int64_t>(span.emit.size());
    array_ = upload.Space<DeviceStateSpan>(static_cast<int64_t>(spans.size()));
    emits_ = upload.Space<DeviceEmit>(emits);
  }
  void Fill() {
    int32_t next = 0;
    for (size_t s = 0; s < spans_.size(); ++s) {
      const StateSpan& span = spans_[s];
      const int32_t begin = next;
      for (const EmittedState& state : span.emit) {
        upload_.at(emits_)[next++] = {state.rows, state.conv, state.recurrent};
      }
      upload_.at(array_)[s] = {span.row_begin, span.rows, span.conv, span.recurrent, begin, next};
    }
  }
  const DeviceStateSpan* there() const { return upload_.there(array_); }
  const DeviceEmit* emits() const { return upload_.there(emits_); }

 private:
  Upload& upload_;
  std::span<const StateSpan> spans_;
  Upload::Array<DeviceStateSpan> array_;
  Upload::Array<DeviceEmit> emits_;
};

// Gives pieces out of a device's scratch.
class Pieces {
 public:
  template <typename T>
  int64_t Add(const int64_t count) {
    const int64_t at = bytes_;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return at;
  }
  void Place(DeviceBuffer& buffer) { memory_ = static_cast<std::byte*>(buffer.Reserve(bytes_)); }
  template <typename T>
  T* at(const int64_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

 private:
  int64_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device, std::unique_ptr<ProductLibrary> library, const DType activations,
              WorkerPool& pool)
      : device_(std::move(device)),
        pool_(pool),
        arguments_(*device_),
        scratch_(*device_),
        chooser_(*device_, arguments_) {
    numerics_ = {.activations = activations, .kv = activations, .backend = device_->numerics_name()};
    if (library != nullptr) numerics_.backend += "_" + library->name();
    products_ = std::make_unique<JudgedProducts>(*device_, std::move(library));
  }
  ~CudaBackend() override {
    device_->Finish();
    for (void* memory : weights_) device_->Free(memory);
  }

  std::string_view name() const override { return "cuda"; }
  const Numerics& numerics() const override { return numerics_; }
  std::string_view isa() const override { return {}; }
  WorkerPool& pool() const override { return pool_; }
  int64_t scratch_bytes() const override { return arguments_.bytes() + scratch_.bytes() + chooser_.scratch_bytes(); }

  std::optional<ShapeLimit> LimitOf(const AttentionShape& shape) const override {
    return HeadDimLimit(shape, kMaxHeadDim);
  }
  std::optional<ShapeLimit> ConvLimit(const int32_t kernel) const override {
    return ConvKernelLimit(kernel, kMaxConvKernel);
  }

  DType PackedDType(const DType source) const override { return PackedDTypeOf(source, numerics_.activations); }
  int64_t PackedBytes(const int64_t rows, const int64_t cols, const DType packed) const override {
    return rows * PackedStride(cols) * BytesOf(packed);
  }
  PackedMatrix PackMatrix(const void* source, const DType source_dtype, const int64_t rows, const int64_t cols,
                          void* dest) const override {
    const DType packed = PackedDType(source_dtype);
    std::memset(dest, 0, static_cast<size_t>(PackedBytes(rows, cols, packed)));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t from = r * cols + c;
        const int64_t to = r * PackedStride(cols) + c;
        if (packed == DType::kF32) {
          static_cast<float*>(dest)[to] = FloatAt(source, source_dtype, from);
        } else {
          static_cast<uint16_t*>(dest)[to] = Bf16At(source, source_dtype, from);
        }
      }
    }
    return {dest, packed, rows, cols};
  }
  StatusOr<std::span<const std::byte>> PlaceWeights(const std::span<const std::byte> packed) override {
    const auto bytes = static_cast<int64_t>(packed.size());
    void* memory = device_->Allocate(bytes);
    if (memory == nullptr) {
      return ResourceExhausted(
          fmt::format("wanted {} bytes of the device's memory for weights, found too little", bytes));
    }
    weights_.push_back(memory);
    device_->CopyIn(memory, packed.data(), bytes);
    device_->Finish();
    return std::span(static_cast<const std::byte*>(memory), packed.size());
  }
  StatusOr<RowMemory> AllocateRows(const int64_t bytes, const RowUse use) override {
    const bool shared = use == RowUse::kHostToo;
    const int64_t size = std::max<int64_t>(bytes, 1);
    void* const memory = shared ? device_->AllocatePinned(size) : device_->Allocate(size);
    if (memory == nullptr) {
      return ResourceExhausted(fmt::format("wanted {} bytes of {} for rows, found too little", bytes,
                                           shared ? "pinned memory" : "the device's memory"));
    }
    if (shared) {
      std::memset(memory, 0, static_cast<size_t>(size));
    } else {
      device_->Zero(memory, size);
    }
    return RowMemory(static_cast<std::byte*>(memory), [device = device_.get(), shared](std::byte* data) {
      device->Finish();
      shared ? device->FreePinned(data) : device->Free(data);
    });
  }
  bool rows_are_apart() const override { return true; }
  PageShape KvPageShape(const int32_t kv_heads, const int32_t head_dim) const override {
    return {kv_heads, head_dim, numerics_.kv, DenseOrder::kSlots};
  }

  void Embed(const PackedMatrix& table, std::span<const int32_t> ids, const F32View out) override {
    Check(out.cols == table.cols && out.rows == static_cast<int64_t>(ids.size()), "Embed: shapes agree");
    for (const int32_t id : ids) Check(id >= 0 && id < table.rows, "Embed: token id in the table", id, table.rows);
    Upload upload(arguments_);
    const auto sent = upload.SpaceFor(ids);
    upload.Place();
    upload.Fill(sent, ids);
    upload.Send(*device_);
    cuda::Embed({table.data, table.dtype, table.cols, upload.there(sent), out}, device_->stream());
  }

  void RmsNorm(const ConstF32View x, std::span<const float> weight, const float eps, const Activations out) override {
    Check(x.cols == static_cast<int64_t>(weight.size()) && out.cols == x.cols && out.rows == x.rows,
          "RmsNorm: shapes agree");
    cuda::RmsNorm({.x = x, .z = {}, .weight = weight.data(), .dim = x.cols, .eps = eps, .out = out}, device_->stream());
  }

  void Linear(const Activations& x, const PackedMatrix& weight, std::span<const float> bias, const LinearMode mode,
              const F32View out) override {
    Check(x.cols == weight.cols && out.cols == weight.rows && out.rows == x.rows, "Linear: shapes agree", x.cols,
          weight.cols, out.cols, weight.rows);
    Check(bias.empty() || static_cast<int64_t>(bias.size()) == weight.rows, "Linear: bias has one value an output");
    products_->Multiply({.x = x,
                         .weight = weight,
                         .bias = bias.empty() ? nullptr : bias.data(),
                         .add = mode == LinearMode::kAdd,
                         .out = out});
  }

  void RopeAngles(std::span<const int32_t> positions, std::span<const double> inverse_frequencies, const double factor,
                  const F32View cos, const F32View sin) override {
    Upload upload(arguments_);
    const auto frequencies = upload.SpaceFor(inverse_frequencies);
    const auto sent = upload.SpaceFor(positions);
    upload.Place();
    upload.Fill(frequencies, inverse_frequencies);
    upload.Fill(sent, positions);
    upload.Send(*device_);
    const auto rows = static_cast<int64_t>(positions.size());
    const auto cols = static_cast<int64_t>(inverse_frequencies.size());
    cuda::RopeAngles({upload.there(sent),
                      upload.there(frequencies),
                      factor,
                      {cos.data, rows, cols, cos.stride},
                      {sin.data, rows, cols, sin.stride}},
                     device_->stream());
  }

  void QkvPrepare(const QkvArgs& args) override {
    CheckAttention(args.shape);
    Check(args.q_out.dtype == numerics_.kv, "QkvPrepare: q has the type of the pages");
    Check(2 * args.cos.cols <= args.shape.head_dim, "QkvPrepare: rotated dims fit the head");
    Upload upload(arguments_);
    KvUpload spans(upload, args.spans);
    const auto row_spans = upload.Space<int32_t>(args.q.rows);
    upload.Place();
    spans.Fill(KvPageShape(args.shape.kv_heads, args.shape.head_dim));
    FillRowSpans(args.spans, args.q.rows, upload.at(row_spans));
    upload.Send(*device_);
    cuda::QkvPrepare({.shape = ShapeArgs(args.shape),
                      .q = args.q,
                      .q_head_stride = args.q_head_stride,
                      .k = args.k,
                      .v = args.v,
                      .q_norm = args.q_norm.empty() ? nullptr : args.q_norm.data(),
                      .k_norm = args.k_norm.empty() ? nullptr : args.k_norm.data(),
                      .norm_eps = args.norm_eps,
                      .cos = args.cos,
                      .sin = args.sin,
                      .spans = spans.there(),
                      .row_spans = upload.there(row_spans),
                      .kv = numerics_.kv,
                      .q_out = args.q_out},
                     device_->stream());
  }

  void Attention(const AttentionArgs& args) override {
    CheckAttention(args.shape);
    Check(args.q.dtype == numerics_.kv, "Attention: q has the type of the pages");
    const AttentionPlan plan = PlanAttention(args.shape, args.spans);
    Upload upload(arguments_);
    KvUpload spans(upload, args.spans);
    const auto tiles = upload.SpaceFor(std::span<const AttentionTile>(plan.tiles));
    const auto tasks = upload.SpaceFor(std::span<const AttentionTask>(plan.tasks));
    const auto split_tiles = upload.SpaceFor(std::span<const int32_t>(plan.split_tiles));
    upload.Place();
    spans.Fill(KvPageShape(args.shape.kv_heads, args.shape.head_dim));
    upload.Fill(tiles, std::span<const AttentionTile>(plan.tiles));
    upload.Fill(tasks, std::span<const AttentionTask>(plan.tasks));
    upload.Fill(split_tiles, std::span<const int32_t>(plan.split_tiles));
    upload.Send(*device_);
    const int64_t partial_bytes = plan.partials * PartialFloats(args.shape.head_dim) * int64_t{sizeof(float)};
    cuda::Attention({.shape = ShapeArgs(args.shape),
                     .kv = numerics_.kv,
                     .q = args.q,
                     .spans = spans.there(),
                     .tiles = upload.there(tiles),
                     .tasks = upload.there(tasks),
                     .task_count = static_cast<int64_t>(plan.tasks.size()),
                     .split_tiles = upload.there(split_tiles),
                     .split_count = static_cast<int64_t>(plan.split_tiles.size()),
                     .partials = static_cast<float*>(scratch_.Reserve(partial_bytes)),
                     .gate = args.gate,
                     .gate_head_stride = args.gate_head_stride,
                     .out = args.out},
                    device_->stream());
  }

  void CausalConv(const ConvArgs& args) override {
    Check(!ConvLimit(args.kernel), "CausalConv: a kernel this backend takes", args.kernel);
    CheckEmits(args.spans);
    Upload upload(arguments_);
    StateUpload spans(upload, args.spans);
    const auto row_spans = upload.Space<int32_t>(args.x.rows);
    upload.Place();
    spans.Fill();
    FillRowSpans(args.spans, args.x.rows, upload.at(row_spans));
    upload.Send(*device_);
    cuda::CausalConv({.x = args.x,
                      .weight = args.weight.data(),
                      .kernel = args.kernel,
                      .spans = spans.there(),
                      .span_count = static_cast<int64_t>(args.spans.size()),
                      .emits = spans.emits(),
                      .row_spans = upload.there(row_spans),
                      .out = args.out},
                     device_->stream());
  }

  void DeltaScan(const DeltaArgs& args) override {
    const DeltaShape& shape = args.shape;
    Check(args.qkv.cols == 2 * shape.heads_k * shape.dim_k + shape.heads_v * shape.dim_v,
          "DeltaScan: q, k and v side by side");
    Check(shape.heads_v % shape.heads_k == 0, "DeltaScan: value heads share key heads evenly");
    Check(shape.dim_k <= kMaxDeltaDimK, "DeltaScan: a key head that fits a column's lanes", shape.dim_k);
    CheckEmits(args.spans);
    Upload upload(arguments_);
    StateUpload spans(upload, args.spans);
    upload.Place();
    spans.Fill();
    upload.Send(*device_);
    const int64_t rows = args.qkv.rows;
    Pieces pieces;
    const int64_t q = pieces.Add<float>(rows * shape.heads_k * shape.dim_k);
    const int64_t k = pieces.Add<float>(rows * shape.heads_k * shape.dim_k);
    const int64_t qk = pieces.Add<float>(rows * shape.heads_k);
    const int64_t beta = pieces.Add<float>(rows * shape.heads_v);
    const int64_t decay = pieces.Add<float>(rows * shape.heads_v);
    pieces.Place(scratch_);
    cuda::DeltaScan({.heads_k = shape.heads_k,
                     .heads_v = shape.heads_v,
                     .dim_k = shape.dim_k,
                     .dim_v = shape.dim_v,
                     .qkv = args.qkv,
                     .b = args.b,
                     .a = args.a,
                     .a_log = args.a_log.data(),
                     .dt_bias = args.dt_bias.data(),
                     .spans = spans.there(),
                     .span_count = static_cast<int64_t>(args.spans.size()),
                     .emits = spans.emits(),
                     .out = args.out,
                     .scratch = {pieces.at<float>(q), pieces.at<float>(k), pieces.at<float>(qk), pieces.at<float>(beta),
                                 pieces.at<float>(decay)}},
                    device_->stream());
  }

  void GatedRmsNorm(const ConstF32View x, const ConstF32View z, std::span<const float> weight, const float eps,
                    const Activations out) override {
    const auto dim = static_cast<int64_t>(weight.size());
    Check(x.cols % dim == 0 && z.cols == x.cols && out.cols == x.cols, "GatedRmsNorm: whole heads");
    cuda::GatedRmsNorm({.x = x, .z = z, .weight = weight.data(), .dim = dim, .eps = eps, .out = out},
                       device_->stream());
  }

  void SwiGlu(const ConstF32View gate_up, const Activations out) override {
    Check(out.cols == gate_up.cols / 2, "SwiGlu: half as many columns come out");
    cuda::SwiGlu(gate_up, out, device_->stream());
  }

  void Experts(const ExpertsArgs& args) override {
    const auto experts = static_cast<int64_t>(args.gate_up.size());
    Check(args.top_k >= 1 && args.top_k <= args.router_logits.cols, "Experts: top_k of all experts", args.top_k);
    Check(experts == args.router_logits.cols && args.down.size() == args.gate_up.size(),
          "Experts: one logit an expert");
    Check(args.gate_up_residual.size() == args.down_residual.size() &&
              (args.down_residual.empty() || args.down_residual.size() == args.down.size()),
          "Experts: residuals of all or of none");
    if (args.x.rows == 0) return;
    Upload upload(arguments_);
    const auto gate_up = upload.Space<DeviceExpert>(experts);
    const auto down = upload.Space<DeviceExpert>(experts);
    upload.Place();
    DType residual_dtype = DType::kBf16;
    const auto fill = [&](DeviceExpert* to, const std::span<const PackedMatrix> matrices,
                          const std::span<const PackedMatrix> residuals) {
      for (int64_t e = 0; e < experts; ++e) {
        Check(matrices[e].dtype == args.gate_up[0].dtype, "Experts: matrices of one type");
        to[e] = {matrices[e].data, residuals.empty() ? nullptr : residuals[e].data};
        if (to[e].residual != nullptr) residual_dtype = residuals[e].dtype;
      }
    };
    fill(upload.at(gate_up), args.gate_up, args.gate_up_residual);
    fill(upload.at(down), args.down, args.down_residual);
    upload.Send(*device_);

    const int64_t inner = args.gate_up[0].rows / 2;
    const int64_t slots = args.x.rows * args.top_k;
    Pieces pieces;
    const int64_t chosen = pieces.Add<int32_t>(slots);
    const int64_t weights = pieces.Add<float>(slots);
    const int64_t slot_of = pieces.Add<int32_t>(slots);
    const int64_t slot_rows = pieces.Add<int32_t>(slots);
    const int64_t first_slot = pieces.Add<int32_t>(experts + 1);
    const int64_t hidden = pieces.Add<float>(slots * 2 * inner);
    const int64_t inner_rows = pieces.Add<float>(slots * inner);
    const int64_t output = pieces.Add<float>(slots * args.out.cols);
    pieces.Place(scratch_);
    cuda::Experts({.x = args.x,
                   .router_logits = args.router_logits,
                   .top_k = args.top_k,
                   .normalize_top_k = args.normalize_top_k,
                   .inner = inner,
                   .gate_up = upload.there(gate_up),
                   .down = upload.there(down),
                   .dtype = args.gate_up[0].dtype,
                   .residual_dtype = residual_dtype,
                   .has_residuals = !args.down_residual.empty(),
                   .out = args.out,
                   .scratch = {.chosen = pieces.at<int32_t>(chosen),
                               .weights = pieces.at<float>(weights),
                               .slots = pieces.at<int32_t>(slot_of),
                               .slot_rows = pieces.at<int32_t>(slot_rows),
                               .first_slot = pieces.at<int32_t>(first_slot),
                               .gate_up = pieces.at<float>(hidden),
                               .inner = pieces.at<void>(inner_rows),
                               .down = pieces.at<float>(output)}},
                  device_->stream());
  }

  void AddSigmoidScaled(const ConstF32View x, const ConstF32View gate, const F32View out) override {
    cuda::AddSigmoidScaled(x, gate, out, device_->stream());
  }

  void Add(const ConstF32View x, const F32View out) override {
    Check(x.rows == out.rows && x.cols == out.cols, "Add: shapes agree");
    cuda::Add(x, out, device_->stream());
  }

  void Copy(const std::span<const CopyPiece> pieces) override {
    if (pieces.empty()) return;
    Upload upload(arguments_);
    const auto sent = upload.SpaceFor(pieces);
    upload.Place();
    upload.Fill(sent, pieces);
    upload.Send(*device_);
    int64_t longest = 0;
    for (const CopyPiece& piece : pieces) longest = std::max(longest, piece.bytes);
    cuda::Copy({upload.there(sent), static_cast<int64_t>(pieces.size()), longest}, device_->stream());
  }

  void Wait() override { device_->Finish(); }
  RowChooser* chooser() const override { return &chooser_; }
  std::optional<StatusOr<MachineLimits>> MeasureLimits() override { return cuda::MeasureLimits(*device_); }

 private:
  void CheckAttention(const AttentionShape& shape) const {
    Check(!LimitOf(shape), "attention: a shape this backend takes", shape.head_dim);
    Check(shape.heads % shape.kv_heads == 0, "attention: heads share KV heads evenly", shape.heads, shape.kv_heads);
  }

  const std::unique_ptr<Device> device_;
  WorkerPool& pool_;
  Numerics numerics_;
  std::unique_ptr<JudgedProducts> products_;
  StagingRing arguments_;
  DeviceBuffer scratch_;
  mutable DeviceRowChooser chooser_;
  std::vector<void*> weights_;
};

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                   std::unique_ptr<ProductLibrary> library, const DType activations,
                                                   WorkerPool& pool) {
  if (activations == DType::kF16) {
    return InvalidArgument("the cuda backend computes with bf16 or f32 activations, not f16", "activations");
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(std::move(device), std::move(library), activations, pool));
}

}  // namespace invar::kernels::cuda
