// Layer by layer, each on one thread: layers are many, and every one of them takes a float copy of its rows.
#include "engine/compressed/compressed_kv.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "kernels/dense_page.h"

namespace invar::engine {
namespace {

constexpr int64_t kPage = kernels::kPageTokens;

kernels::PageShape ShapeOf(const models::Model& model) {
  const kernels::AttentionShape& shape = model.spec().attention.shape;
  Check(model.backend() != nullptr && shape.window == 0, "the model's KV can be viewed");
  return model.backend()->KvPageShape(shape.kv_heads, shape.head_dim);
}

Shown ShowTo(const cache::Compressor& compressor, const QueryLog* const log, const size_t layer, const int32_t tokens) {
  return log == nullptr ? Shown{} : log->Show(compressor.traits(), static_cast<int32_t>(layer), tokens);
}

}  // namespace

std::string WhyNoViews(const models::ModelSpec& spec) {
  if (spec.attention.page_offsets_bytes.empty())
    return "the model has no attention layers whose KV could be compressed";
  if (spec.attention.shape.window > 0) return "the model's attention has a window, which slots without positions lack";
  return {};
}

CompressedKv::CompressedKv(const models::Model& model, const cache::Compressor& compressor, const cache::Budget budget)
    : model_(model),
      compressor_(compressor),
      budget_(budget),
      shape_(ShapeOf(model)),
      bodies_(std::make_unique<cache::BodyArena>()) {}

int32_t CompressedKv::tail_slots() const {
  int64_t most = 0;
  for (const cache::CompressedLayer& layer : layers_) most = std::max(most, layer.tail_slots());
  return static_cast<int32_t>(most);
}

int64_t CompressedKv::body_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const cache::CompressedLayer& layer = layers_[i];
    bytes += layer.body_pages() * kernels::EncodedPageBytes(layer.encoding(), shape_) +
             static_cast<int64_t>(log_degrees_[i].size() * sizeof(float));
  }
  return bytes;
}

void CompressedKv::Make(const PageRows& full, const int32_t tokens, const QueryLog* const log) {
  MakeOf(tokens, [&](const size_t i, cache::BodyArena& scratch) -> std::optional<cache::CompressedLayer> {
    const Shown shown = ShowTo(compressor_, log, i, tokens);
    const auto read = [&](const int64_t first, const kernels::KvRows& into) { ReadInto(i, full, first, into); };
    return compressor_.Prefill(shape_, tokens, read, ContextOf(i, shown, &scratch));
  });
}

Status CompressedKv::MakeBehind(const ReadLayer& before, const PageRows& full, const int32_t tokens) {
  std::vector<Status> read_as(model_.spec().attention.page_offsets_bytes.size());
  const int64_t page_bytes = kernels::EncodedPageBytes(kernels::KvEncoding::kDense, shape_);
  const bool made =
      MakeOf(tokens, [&](const size_t i, cache::BodyArena& scratch) -> std::optional<cache::CompressedLayer> {
        BlockBuffer buffer;
        const StatusOr<const std::byte*> pages = before(i, buffer);
        read_as[i] = pages.ok() ? OkStatus() : pages.status();
        if (!pages.ok()) return std::nullopt;
        const auto read = [&](const int64_t first, const kernels::KvRows& into) {
          const int64_t end = first + into.slots;
          int64_t place = first;
          while (place < std::min<int64_t>(end, full.first)) {
            const int64_t count = std::min(kPage - place % kPage, end - place);
            kernels::ReadRows(shape_, *pages + place / kPage * page_bytes, static_cast<int32_t>(place % kPage),
                              into.Slots(place - first, count));
            place += count;
          }
          if (place < end) ReadInto(i, full, place, into.Slots(place - first, end - place));
        };
        return compressor_.Prefill(shape_, tokens, read, ContextOf(i, Shown{}, &scratch));
      });
  if (made) return OkStatus();
  Clear();
  return *std::find_if(read_as.begin(), read_as.end(), [](const Status& s) { return !s.ok(); });
}

template <typename LayerOf>
bool CompressedKv::MakeOf(const int32_t tokens, const LayerOf& layer_of) {
  // One layer after another takes the same places, which the system clears once.
  cache::BodyArena scratch;
  std::vector<std::optional<cache::CompressedLayer>> made(model_.spec().attention.page_offsets_bytes.size());
  ForEach(made.size(), [&](const size_t i) { made[i] = layer_of(i, scratch); });
  layers_.clear();
  for (std::optional<cache::CompressedLayer>& layer : made) {
    if (!layer.has_value()) return false;
    layers_.push_back(*std::move(layer));
  }
  tokens_ = tokens;
  UpdateDegrees();
  return true;
}

void CompressedKv::Adopt(std::vector<cache::CompressedLayer> layers, const int32_t tokens) {
  Check(layers.size() == model_.spec().attention.page_offsets_bytes.size(), "a view is of all attention layers",
        layers.size());
  layers_ = std::move(layers);
  tokens_ = tokens;
  UpdateDegrees();
}

void CompressedKv::TakeFull(const PageRows& full, const int32_t rows) {
  Take(full, rows, [this](size_t) { return tokens_; });
}

void CompressedKv::TakeTail(const PageRows& tail, const int32_t rows) {
  Take(tail, rows, [this](const size_t i) { return layers_[i].tail_slots(); });
}

template <typename FirstPlace>
void CompressedKv::Take(const PageRows& from, const int32_t rows, const FirstPlace& first_place) {
  ForEach(layers_.size(), [&](const size_t i) { layers_[i].Append(Read(i, from, first_place(i), rows).rows); });
  tokens_ += rows;
}

void CompressedKv::Settle(const QueryLog* const log) {
  ForEach(layers_.size(), [&](const size_t i) {
    const Shown shown = ShowTo(compressor_, log, i, tokens_);
    compressor_.Maintain(layers_[i], tokens_, ContextOf(i, shown));
  });
  UpdateDegrees();
}

void CompressedKv::WriteTail(const int32_t from_slot, const PageRows& tail) const {
  Write(tail, [&](size_t) { return from_slot; });
}

void CompressedKv::WriteTailEnd(const int32_t rows, const PageRows& tail) const {
  Write(tail, [&](const size_t i) { return layers_[i].tail_slots() - rows; });
}

template <typename FromSlot>
void CompressedKv::Write(const PageRows& tail, const FromSlot& from_slot) const {
  ForEach(layers_.size(), [&](const size_t i) {
    const kernels::ConstKvRows rows = layers_[i].tail();
    ForPieces(i, tail, from_slot(i), rows.slots, [&](std::byte* const page, const int64_t slot, const int64_t count) {
      kernels::WriteRows(shape_, static_cast<int32_t>(slot % kPage), rows.Slots(slot, count), page);
    });
  });
}

void CompressedKv::Clear() {
  tokens_ = 0;
  layers_.clear();
  log_degrees_.clear();
}

std::span<const models::ViewLayer> CompressedKv::At(const Position first) {
  described_.clear();
  for (size_t i = 0; i < layers_.size(); ++i) {
    const cache::CompressedLayer& layer = layers_[i];
    described_.push_back({.body = {.bytes = layer.body_pages() > 0 ? layer.page(0).data() : nullptr,
                                   .pages = static_cast<int32_t>(layer.body_pages()),
                                   .encoding = layer.encoding(),
                                   .log_degrees = log_degrees_[i].empty() ? nullptr : log_degrees_[i].data()},
                          .slots = static_cast<int32_t>(layer.slots()) + first.value() - tokens_});
  }
  return described_;
}

template <typename Work>
void CompressedKv::ForEach(const size_t count, const Work& work) const {
  model_.backend()->pool().ParallelFor(static_cast<int64_t>(count),
                                       [&](const int64_t i) { work(static_cast<size_t>(i)); });
}

// visit(the layer's part of a page, first place, places of it), for places [first, end) page by page.
template <typename Visit>
void CompressedKv::ForPieces(const size_t layer, const PageRows& rows, const int64_t first, const int64_t end,
                             const Visit& visit) const {
  const models::ModelSpec& spec = model_.spec();
  for (int64_t place = first; place < end;) {
    const int64_t count = std::min(kPage - place % kPage, end - place);
    visit(rows.arena +
              int64_t{rows.pages[static_cast<size_t>((place - rows.first) / kPage)].value()} * spec.page_bytes +
              spec.attention.page_offsets_bytes[layer],
          place, count);
    place += count;
  }
}

CompressedKv::Floats CompressedKv::Read(const size_t layer, const PageRows& from, const int64_t first,
                                        const int64_t count) const {
  const int64_t row_floats = int64_t{shape_.kv_heads} * shape_.head_dim;
  Floats out;
  out.keys.resize(static_cast<size_t>(count * row_floats));
  out.values.resize(out.keys.size());
  out.rows = {out.keys.data(), out.values.data(), count, shape_.head_dim, row_floats};
  ReadInto(layer, from, first, out.rows);
  return out;
}

void CompressedKv::ReadInto(const size_t layer, const PageRows& from, const int64_t first,
                            const kernels::KvRows& into) const {
  ForPieces(layer, from, first, first + into.slots,
            [&](const std::byte* page, const int64_t place, const int64_t rows) {
              kernels::ReadRows(shape_, page, static_cast<int32_t>(place % kPage), into.Slots(place - first, rows));
            });
}

cache::CompressContext CompressedKv::ContextOf(const size_t layer, const Shown& shown,
                                               std::pmr::memory_resource* const scratch) const {
  return {.layer = LayerIndex(static_cast<int32_t>(layer)),
          .observation = shown.observation,
          .budget = budget_,
          .bodies = bodies_.get(),
          .scratch = scratch};
}

void CompressedKv::UpdateDegrees() {
  while (log_degrees_.size() < layers_.size()) log_degrees_.emplace_back(bodies_.get());
  ForEach(layers_.size(), [&](const size_t i) {
    std::pmr::vector<float>& logs = log_degrees_[i];
    logs.clear();
    if (!layers_[i].has_degrees()) return;
    const auto count = static_cast<size_t>(layers_[i].body_slots() * shape_.kv_heads);
    if (count > logs.capacity()) logs.reserve(logs.capacity() == 0 ? count : count + count / 8);
    for (int64_t p = 0; p < layers_[i].body_pages(); ++p) {
      for (const cache::SlotMark& mark : layers_[i].page_marks(p)) {
        logs.push_back(mark.degree == 1 ? 0.0F : static_cast<float>(std::log(static_cast<double>(mark.degree))));
      }
    }
  });
}

}  // namespace invar::engine
