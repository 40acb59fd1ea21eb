// Packing reads each source row once and writes each packed byte once. Ranges that are one whole aligned tensor are
// packed straight from the mapped file; others are gathered in a staging buffer of one matrix.
#include "models/weights/loader.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "base/fingerprint.h"
#include "base/log.h"
#include "models/weights/element.h"
#include "models/weights/packed_file.h"

namespace invar::models {

// Pages of the process; unmapped at the end. Shared only so that LoadedWeights can be moved without its definition
// here.
struct LoadedWeights::AnonymousMemory {
  explicit AnonymousMemory(const int64_t size)
      : bytes(static_cast<size_t>(size)),
        data(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~AnonymousMemory() {
    if (data != MAP_FAILED) munmap(data, bytes);
  }
  AnonymousMemory(const AnonymousMemory&) = delete;
  AnonymousMemory& operator=(const AnonymousMemory&) = delete;

  const size_t bytes;
  void* const data;
};

namespace {

using kernels::DType;

constexpr int64_t kAlignment = 64;              // Of matrices in the payload: one cache line, as PackMatrix asks.
constexpr std::string_view kPackVersion = "2";  // Of this file's layout; the backend's is part of its numerics id.

struct Slot {
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct Layout {
  std::vector<Slot> matrices;
  std::vector<Slot> residuals;  // One a matrix; no bytes where there is none.
  std::vector<Slot> vectors;
  int64_t bytes = 0;
};

Layout MakeLayout(const WeightPlan& plan, const kernels::Backend& backend) {
  Layout layout;
  const auto take = [&layout](const int64_t bytes) {
    const Slot slot{layout.bytes, bytes};
    layout.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return slot;
  };
  for (const PlannedMatrix& matrix : plan.matrices()) {
    const DType packed = backend.PackedDType(matrix.source);
    const int64_t bytes = backend.PackedBytes(matrix.rows, matrix.cols, packed);
    const bool residual = matrix.source != DType::kBf16 && packed == DType::kBf16;
    layout.matrices.push_back(take(bytes));
    layout.residuals.push_back(take(residual ? bytes : 0));
  }
  for (const PlannedVector& vector : plan.vectors()) layout.vectors.push_back(take(vector.size * 4));
  return layout;
}

// Changes with everything that decides the payload's bytes except the contents of the weight files.
std::string LayoutKey(const WeightPlan& plan, const Layout& layout, const std::string& config_text,
                      const kernels::Backend& backend) {
  FingerprintBuilder key;
  key.AddFramed(kPackVersion).AddFramed(backend.numerics().id()).AddFramed(config_text);
  for (size_t i = 0; i < plan.matrices().size(); ++i) {
    const PlannedMatrix& matrix = plan.matrices()[i];
    key.AddFramed(fmt::format("{} {} {} {} {}", matrix.rows, matrix.cols, static_cast<int>(matrix.source),
                              layout.matrices[i].offset, layout.residuals[i].bytes));
    for (const RowRange& range : matrix.ranges)
      key.AddFramed(fmt::format("{} {} {}", range.tensor, range.begin, range.count));
  }
  for (size_t i = 0; i < plan.vectors().size(); ++i) {
    const PlannedVector& vector = plan.vectors()[i];
    key.AddFramed(fmt::format("{} {} {}", vector.size, vector.add_one, layout.vectors[i].offset));
    for (const std::string& tensor : vector.tensors) key.AddFramed(tensor);
  }
  return ToHex(key.Finish());
}

int64_t Nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

std::vector<PackedSource> SourcesOf(const WeightFiles& weights) {
  std::vector<PackedSource> sources;
  for (const SafetensorsFile& file : weights.files()) {
    struct stat info {};
    stat(file.path().c_str(), &info);  // Was just opened; should it vanish, zeros match nothing.
    sources.push_back({.name = std::filesystem::path(file.path()).filename().string(),
                       .bytes = static_cast<int64_t>(file.bytes().size()),
                       .modified_ns = Nanoseconds(info.st_mtim),
                       .changed_ns = Nanoseconds(info.st_ctim),
                       .inode = static_cast<int64_t>(info.st_ino)});
  }
  return sources;
}

std::string FingerprintOf(const WeightFiles& weights, const std::string& config_text) {
  FingerprintBuilder builder;
  builder.AddFramed(config_text);
  for (const SafetensorsFile& file : weights.files()) builder.Add(file.bytes());
  return ToHex(builder.Finish());
}

// Fills one payload; holds the staging buffer between matrices.
class Packer {
 public:
  Packer(const WeightPlan& plan, const Layout& layout, const kernels::Backend& backend, const ModelOptions& options)
      : plan_(plan), layout_(layout), backend_(backend), options_(options) {}

  void Fill(const std::span<std::byte> payload) {
    int64_t done = 0;
    for (size_t i = 0; i < plan_.matrices().size(); ++i) {
      const Slot& residual = layout_.residuals[i];
      PackOne(plan_.matrices()[i], payload.data() + layout_.matrices[i].offset);
      if (residual.bytes > 0) PackResidual(plan_.matrices()[i], payload.data() + residual.offset);
      done += layout_.matrices[i].bytes + residual.bytes;
      if (options_.progress) options_.progress(done, layout_.bytes);
    }
    for (size_t i = 0; i < plan_.vectors().size(); ++i) {
      WriteVector(plan_.vectors()[i], reinterpret_cast<float*>(payload.data() + layout_.vectors[i].offset));
    }
    if (options_.progress) options_.progress(layout_.bytes, layout_.bytes);
  }

 private:
  void PackOne(const PlannedMatrix& matrix, std::byte* dest) {
    const TensorInfo& first = *plan_.files().Find(matrix.ranges[0].tensor);
    const int64_t element = kernels::BytesOf(matrix.source);
    const std::byte* source = first.data + matrix.ranges[0].begin * matrix.cols * element;
    const bool direct = matrix.ranges.size() == 1 && *first.dtype == matrix.source &&
                        reinterpret_cast<uintptr_t>(source) % static_cast<uintptr_t>(element) == 0;
    if (!direct) source = Gather(matrix, matrix.source);
    backend_.PackMatrix(source, matrix.source, matrix.rows, matrix.cols, dest);
  }

  // What rounding to bf16 leaves over, itself rounded to bf16.
  void PackResidual(const PlannedMatrix& matrix, std::byte* dest) {
    Gather(matrix, DType::kF32);
    auto* values = reinterpret_cast<float*>(staging_.data());
    for (int64_t i = 0; i < matrix.rows * matrix.cols; ++i)
      values[i] -= kernels::FloatFromBf16(kernels::Bf16FromFloat(values[i]));
    backend_.PackMatrix(values, DType::kF32, matrix.rows, matrix.cols, dest);
  }

  // All rows in one piece. `as` is the matrix's own type, or f32.
  const std::byte* Gather(const PlannedMatrix& matrix, const DType as) {
    const int64_t row_bytes = matrix.cols * kernels::BytesOf(as);
    staging_.resize(static_cast<size_t>(matrix.rows * row_bytes));
    std::byte* out = staging_.data();
    for (const RowRange& range : matrix.ranges) {
      const TensorInfo& tensor = *plan_.files().Find(range.tensor);
      const std::byte* rows = tensor.data + range.begin * matrix.cols * kernels::BytesOf(*tensor.dtype);
      if (*tensor.dtype == as) {
        std::memcpy(out, rows, static_cast<size_t>(range.count * row_bytes));
      } else {
        ReadElements(rows, *tensor.dtype, range.count * matrix.cols, reinterpret_cast<float*>(out));
      }
      out += range.count * row_bytes;
    }
    return staging_.data();
  }

  void WriteVector(const PlannedVector& vector, float* out) const {
    for (const std::string& name : vector.tensors) {
      const TensorInfo& tensor = *plan_.files().Find(name);
      const int64_t size = tensor.bytes / kernels::BytesOf(*tensor.dtype);
      ReadElements(tensor.data, *tensor.dtype, size, out);
      for (int64_t i = 0; vector.add_one && i < size; ++i) out[i] += 1.0F;
      out += size;
    }
  }

  const WeightPlan& plan_;
  const Layout& layout_;
  const kernels::Backend& backend_;
  const ModelOptions& options_;
  std::vector<std::byte> staging_;
};

// The file goes away first: whatever becomes of this process, the next one packs anew.
void EndCheck(const std::string& path, const std::optional<int64_t> damaged_block,
              const std::function<void(const Status&)>& damaged) {
  if (!damaged_block.has_value()) {
    Logger("models")->info("every block of {} matches its checksum", path);
    return;
  }
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  const Status status = DataLoss(
      fmt::format("{}: block {} does not match its checksum: answers since the start may be wrong; the file is removed "
                  "and will be packed again",
                  path, *damaged_block));
  Logger("models")->error("{}", status.message());
  if (damaged) damaged(status);
}

}  // namespace

// One load, from looking for the packed file to the views.
class WeightLoader {
 public:
  WeightLoader(const WeightPlan& plan, const std::string& config_text, const ModelOptions& options,
               kernels::Backend& backend)
      : plan_(plan),
        config_text_(config_text),
        options_(options),
        backend_(backend),
        layout_(MakeLayout(plan, backend)) {}

  StatusOr<LoadedWeights> Load() {
    if (Status s = LoadPayload(); !s.ok()) return s;
    const StatusOr<std::span<const std::byte>> placed = backend_.PlaceWeights(payload_);
    if (!placed.ok()) return placed.status();
    MakeViews(*placed);
    if (placed->data() != payload_.data()) weights_.memory_ = nullptr;  // The device has its own.
    return std::move(weights_);
  }

 private:
  Status LoadPayload() {
    if (options_.pack_to_file && LoadFromFile()) return OkStatus();
    Fingerprint();
    weights_.memory_ = std::make_shared<LoadedWeights::AnonymousMemory>(layout_.bytes);
    if (weights_.memory_->data == MAP_FAILED) {
      return ResourceExhausted(fmt::format("{}: wanted {} bytes of memory for packed weights, found too little",
                                           options_.folder, layout_.bytes));
    }
    const std::span<std::byte> payload(static_cast<std::byte*>(weights_.memory_->data), weights_.memory_->bytes);
    Packer(plan_, layout_, backend_, options_).Fill(payload);
    payload_ = payload;
    return OkStatus();
  }

  // Hashing reads every weight: once at most, and not at all where a packed file says it.
  const std::string& Fingerprint() {
    if (weights_.fingerprint_.empty()) weights_.fingerprint_ = FingerprintOf(plan_.files(), config_text_);
    return weights_.fingerprint_;
  }

  // False where no packed file can be had; the reason is logged.
  bool LoadFromFile() {
    const PackedKey key{.layout = LayoutKey(plan_, layout_, config_text_, backend_),
                        .sources = SourcesOf(plan_.files()),
                        .payload_bytes = layout_.bytes,
                        .fingerprint = [this] { return Fingerprint(); }};
    const std::string path = fmt::format("{}/model.{}.packed", options_.folder, backend_.numerics().id());
    std::string why;
    std::optional<PackedFile> packed = OpenPackedFile(path, key, why);
    if (!packed.has_value()) {
      if (!why.empty()) Logger("models")->info("packing again, {}: {}", path, why);
      const Status written = WritePackedFile(path, key, Fingerprint(), [this](const std::span<std::byte> payload) {
        Packer(plan_, layout_, backend_, options_).Fill(payload);
        return OkStatus();
      });
      if (!written.ok()) {
        Logger("models")->info("packing into memory: {}", written.message());
        return false;
      }
      why.clear();
      packed = OpenPackedFile(path, key, why);
      if (!packed.has_value()) {
        Logger("models")->warn("packing into memory, {}: {}", path, why);
        return false;
      }
    }
    weights_.map_ = std::move(packed->map);
    weights_.fingerprint_ = std::move(packed->fingerprint);
    payload_ = packed->payload;
    if (!packed->checked_whole) {
      weights_.check_ = std::make_shared<PackedCheck>(
          packed->payload, std::move(packed->checksums),
          [path, damaged = options_.damaged](const std::optional<int64_t> block) { EndCheck(path, block, damaged); });
    }
    return true;
  }

  void MakeViews(const std::span<const std::byte> payload) {
    for (size_t i = 0; i < plan_.matrices().size(); ++i) {
      const PlannedMatrix& matrix = plan_.matrices()[i];
      Weight weight{.main = {.data = payload.data() + layout_.matrices[i].offset,
                             .dtype = backend_.PackedDType(matrix.source),
                             .rows = matrix.rows,
                             .cols = matrix.cols},
                    .residual = {},
                    .bytes = layout_.matrices[i].bytes + layout_.residuals[i].bytes};
      if (layout_.residuals[i].bytes > 0) {
        weight.residual = weight.main;
        weight.residual.data = payload.data() + layout_.residuals[i].offset;
      }
      weights_.matrices_.push_back(weight);
    }
    for (size_t i = 0; i < plan_.vectors().size(); ++i) {
      weights_.vectors_.emplace_back(reinterpret_cast<const float*>(payload.data() + layout_.vectors[i].offset),
                                     static_cast<size_t>(plan_.vectors()[i].size));
    }
  }

  const WeightPlan& plan_;
  const std::string& config_text_;
  const ModelOptions& options_;
  kernels::Backend& backend_;
  const Layout layout_;
  LoadedWeights weights_;
  std::span<const std::byte> payload_;  // On the host, in what weights_ holds.
};

StatusOr<LoadedWeights> LoadWeights(const WeightPlan& plan, const std::string& config_text, const ModelOptions& options,
                                    kernels::Backend& backend) {
  Check(plan.status().ok(), "only a complete plan is loaded", plan.status().message());
  return WeightLoader(plan, config_text, options, backend).Load();
}

}  // namespace invar::models
