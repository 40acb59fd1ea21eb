// Export, little endian, everything in this order:
//   magic "IVCL", u32 version, u32 kv_heads, head_dim, dense type, dense order, encoding, merges, u64 tokens, settled,
//   rounds, missed slots, body pages, tail slots, u64 length and bytes of the provenance, pages, marks (u32 position,
//   u32 degree | flags
//   << 30), tail keys, tail values (f32), tail marks, SHA-256 of all before.
#include "cache/compressed_layer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace invar::cache {
namespace {

using kernels::ConstKvRows;
using kernels::KvEncoding;
using kernels::PageShape;

constexpr int64_t kPage = kernels::kEncodedPageSlots;
constexpr uint32_t kMagic = 0x4C435649;  // "IVCL"
constexpr uint32_t kVersion = 2;
constexpr uint64_t kCountMax = uint64_t{1} << 40;  // Keeps products of sizes inside 64 bits.

class Writer {
 public:
  void U32(const uint32_t x) { Raw(&x, sizeof(x)); }
  void U64(const uint64_t x) { Raw(&x, sizeof(x)); }
  void Raw(const void* data, const size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
  }
  void Marks(const std::vector<SlotMark>& marks) {
    for (const SlotMark& mark : marks) {
      U32(mark.position);
      U32(mark.degree | uint32_t{mark.is_judged} << 30 | uint32_t{mark.is_outlier} << 31);
    }
  }
  std::vector<std::byte> bytes;
};

// Reads past the end give zeros and are remembered.
class Reader {
 public:
  explicit Reader(const std::span<const std::byte> bytes) : left_(bytes) {}
  bool ok() const { return ok_; }
  size_t left() const { return left_.size(); }
  uint32_t U32() {
    uint32_t x = 0;
    Raw(&x, sizeof(x));
    return x;
  }
  uint64_t U64() {
    uint64_t x = 0;
    Raw(&x, sizeof(x));
    return x;
  }
  void Raw(void* data, const size_t size) {
    ok_ = ok_ && size <= left_.size();
    if (!ok_ || size == 0) return;
    std::memcpy(data, left_.data(), size);
    left_ = left_.subspan(size);
  }
  // A vector is only made once its bytes are known to be there.
  template <typename T>
  std::vector<T> Vector(const uint64_t count) {
    ok_ = ok_ && count <= left_.size() / sizeof(T);
    std::vector<T> out(ok_ ? count : 0);
    Raw(out.data(), out.size() * sizeof(T));
    return out;
  }
  std::vector<SlotMark> Marks(const uint64_t count) {
    const std::vector<uint32_t> words = Vector<uint32_t>(2 * count);
    std::vector<SlotMark> out;
    out.reserve(words.size() / 2);
    for (size_t i = 0; i + 1 < words.size(); i += 2) {
      SlotMark mark(words[i], words[i + 1] & 0x3fffffffU);
      mark.is_judged = words[i + 1] >> 30 & 1U;
      mark.is_outlier = words[i + 1] >> 31;
      out.push_back(mark);
    }
    return out;
  }

 private:
  std::span<const std::byte> left_;
  bool ok_ = true;
};

Digest DigestOf(const std::span<const std::byte> bytes) { return FingerprintBuilder().Add(bytes).Finish(); }

}  // namespace

CompressedLayer::CompressedLayer(const PageShape& shape, const KvEncoding encoding, std::string provenance,
                                 std::pmr::memory_resource* const bodies)
    : shape_(shape), encoding_(encoding), provenance_(std::move(provenance)), pages_(bodies) {
  Check(shape.kv_heads > 0 && shape.head_dim > 0, "a layer has heads and dims", shape.kv_heads, shape.head_dim);
}

std::span<const std::byte> CompressedLayer::page(const int64_t index) const {
  Check(index >= 0 && index < body_pages(), "the page is in the body", index, body_pages());
  const int64_t size = kernels::EncodedPageBytes(encoding_, shape_);
  return std::span(pages_).subspan(index * size, size);
}

std::span<const SlotMark> CompressedLayer::page_marks(const int64_t index) const {
  Check(index >= 0 && index < body_pages(), "the page is in the body", index, body_pages());
  return std::span(marks_).subspan(index * kPage * heads(), kPage * heads());
}

ConstKvRows CompressedLayer::tail() const {
  return {tail_keys_.data(), tail_values_.data(), tail_slots(), shape_.head_dim, row_floats()};
}

int64_t CompressedLayer::bytes() const {
  const int64_t row_bytes = 2 * row_floats() * kernels::BytesOf(shape_.dense);
  const int64_t degree_bytes = has_degrees_ ? kLogDegreeBytes * slots() * heads() : 0;
  return static_cast<int64_t>(pages_.size()) + tail_slots() * row_bytes + degree_bytes;
}

void CompressedLayer::Append(const ConstKvRows& rows) {
  for (int64_t s = 0; s < rows.slots; ++s) {
    for (int64_t h = 0; h < heads(); ++h) {
      tail_keys_.insert(tail_keys_.end(), rows.key(h, s), rows.key(h, s) + shape_.head_dim);
      tail_values_.insert(tail_values_.end(), rows.value(h, s), rows.value(h, s) + shape_.head_dim);
    }
    tail_marks_.insert(tail_marks_.end(), heads(), SlotMark(static_cast<uint32_t>(tokens_)));
    ++tokens_;
  }
}

void CompressedLayer::Truncate(const int64_t length) {
  Check(settled_ <= length && length <= tokens_, "only provisional rows are forgotten", settled_, length, tokens_);
  const int64_t left = tail_slots() - (tokens_ - length);
  tail_keys_.resize(left * row_floats());
  tail_values_.resize(left * row_floats());
  tail_marks_.resize(left * heads());
  tokens_ = length;
}

void CompressedLayer::ReplaceTail(const int64_t from, const ConstKvRows& rows) {
  Check(settled_ <= from && from + rows.slots <= tokens_, "only provisional rows are replaced", settled_, from,
        rows.slots, tokens_);
  const int64_t first = tail_slots() - (tokens_ - from);
  for (int64_t s = 0; s < rows.slots; ++s) {
    for (int64_t h = 0; h < heads(); ++h) {
      const int64_t at = (first + s) * row_floats() + h * shape_.head_dim;
      std::copy_n(rows.key(h, s), shape_.head_dim, tail_keys_.begin() + at);
      std::copy_n(rows.value(h, s), shape_.head_dim, tail_values_.begin() + at);
    }
  }
}

std::vector<std::byte> CompressedLayer::Export() const {
  Writer out;
  for (const uint32_t x :
       {kMagic, kVersion, static_cast<uint32_t>(shape_.kv_heads), static_cast<uint32_t>(shape_.head_dim),
        static_cast<uint32_t>(shape_.dense), static_cast<uint32_t>(shape_.order), static_cast<uint32_t>(encoding_),
        static_cast<uint32_t>(merges_)}) {
    out.U32(x);
  }
  for (const int64_t x : {tokens_, settled_, rounds_, missed_slots_, body_pages(), tail_slots()}) out.U64(x);
  out.U64(provenance_.size());
  out.Raw(provenance_.data(), provenance_.size());
  out.Raw(pages_.data(), pages_.size());
  out.Marks(marks_);
  out.Raw(tail_keys_.data(), tail_keys_.size() * sizeof(float));
  out.Raw(tail_values_.data(), tail_values_.size() * sizeof(float));
  out.Marks(tail_marks_);
  const Digest digest = DigestOf(out.bytes);
  out.Raw(digest.data(), digest.size());
  return std::move(out.bytes);
}

StatusOr<CompressedLayer> CompressedLayer::Import(const std::span<const std::byte> bytes, const PageShape& shape,
                                                  const std::string& provenance) {
  const auto damaged = [](const std::string& what) { return DataLoss("a compressed layer is damaged: " + what); };
  Digest digest{};
  if (bytes.size() < digest.size()) return damaged("shorter than its checksum");
  const auto content = bytes.first(bytes.size() - digest.size());
  std::memcpy(digest.data(), bytes.data() + content.size(), digest.size());
  if (DigestOf(content) != digest) return damaged("its checksum differs");

  Reader in(content);
  if (in.U32() != kMagic || in.U32() != kVersion) return damaged("not of this version");
  PageShape found;
  found.kv_heads = static_cast<int32_t>(in.U32());
  found.head_dim = static_cast<int32_t>(in.U32());
  found.dense = static_cast<kernels::DType>(in.U32());
  found.order = static_cast<kernels::DenseOrder>(in.U32());
  if (found != shape) return FailedPrecondition("the compressed layer has another shape than this model's layer");
  const uint32_t encoding = in.U32();
  if (encoding >= kernels::kEncodings) return damaged("unknown encoding");
  CompressedLayer layer(shape, static_cast<KvEncoding>(encoding), provenance);
  layer.merges_ = in.U32() != 0;
  uint64_t counts[6] = {};
  for (uint64_t& count : counts) {
    count = in.U64();
    if (count > kCountMax) return damaged("a count is out of range");
  }
  layer.tokens_ = static_cast<int64_t>(counts[0]);
  layer.settled_ = static_cast<int64_t>(counts[1]);
  layer.rounds_ = static_cast<int64_t>(counts[2]);
  layer.missed_slots_ = static_cast<int64_t>(counts[3]);
  const std::vector<char> made_by = in.Vector<char>(in.U64());
  if (!in.ok()) return damaged("cut short");
  if (std::string_view(made_by.data(), made_by.size()) != provenance) {
    return FailedPrecondition("the compressed layer was made by \"" + std::string(made_by.begin(), made_by.end()) +
                              "\", wanted is \"" + provenance + "\"");
  }
  // Bounded by what is there before anything is multiplied.
  if (counts[4] > in.left() || counts[5] > in.left()) return damaged("cut short");
  const auto pages = in.Vector<std::byte>(counts[4] * kernels::EncodedPageBytes(layer.encoding_, shape));
  layer.pages_.assign(pages.begin(), pages.end());
  layer.marks_ = in.Marks(counts[4] * kPage * shape.kv_heads);
  layer.tail_keys_ = in.Vector<float>(counts[5] * layer.row_floats());
  layer.tail_values_ = in.Vector<float>(counts[5] * layer.row_floats());
  layer.tail_marks_ = in.Marks(counts[5] * shape.kv_heads);
  if (!in.ok() || in.left() != 0) return damaged("sizes do not agree");
  layer.has_degrees_ =
      std::any_of(layer.marks_.begin(), layer.marks_.end(), [](const SlotMark& m) { return m.degree > 1; });
  if (const char* fault = layer.Fault()) return damaged(fault);
  return layer;
}

Digest CompressedLayer::ContentHash() const { return DigestOf(Export()); }

const char* CompressedLayer::Fault() const {
  if (settled_ < 0 || settled_ > tokens_) return "more is settled than there is";
  if (marks_.size() % (kPage * heads()) != 0 || tail_marks_.size() % heads() != 0)
    return "marks do not fill their slots";
  if (static_cast<int64_t>(pages_.size()) != body_pages() * kernels::EncodedPageBytes(encoding_, shape_)) {
    return "pages and marks disagree";
  }
  if (static_cast<int64_t>(tail_keys_.size()) != tail_slots() * row_floats() ||
      tail_keys_.size() != tail_values_.size()) {
    return "rows and marks of the tail disagree";
  }
  if (tail_slots() < tokens_ - settled_) return "a provisional row is missing";
  bool above_one = false;
  for (int64_t h = 0; h < heads(); ++h) {
    int64_t sum = 0;
    int64_t before = -1;
    for (int64_t s = 0; s < slots(); ++s) {
      const int64_t in_tail = s - body_slots();
      const SlotMark& mark =
          in_tail < 0 ? marks_[(s / kPage * heads() + h) * kPage + s % kPage] : tail_marks_[in_tail * heads() + h];
      if (mark.degree < 1 || (in_tail >= 0 && mark.degree > 1))
        return "a slot stands for no token, or one of the tail for several";
      if (mark.position <= before) return "slots are out of order";
      if (slots() - s <= tokens_ - settled_ && mark.position != tokens_ - (slots() - s)) {
        return "a provisional row has another position";
      }
      before = mark.position;
      sum += mark.degree;
      above_one = above_one || mark.degree > 1;
    }
    if (before >= tokens_) return "a slot lies beyond the last token";
    if (merges_ ? sum != tokens_ : sum > tokens_) return "degrees do not add up to the tokens";
  }
  if (above_one != has_degrees_ || (above_one && !merges_)) return "degrees are not what the layer says";
  return nullptr;
}

void CompressedLayer::CheckIntegrity() const {
  const char* fault = Fault();
  Check(fault == nullptr, "a compressed layer is whole", fault == nullptr ? "" : fault);
}

}  // namespace invar::cache
