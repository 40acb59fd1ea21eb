// Only whole pages are encoded: what does not fill one stays in the tail.
#include "cache/compress/layer_writer.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace invar::cache {
namespace {

constexpr int64_t kPage = kernels::kEncodedPageSlots;

int64_t PagesBefore(const int64_t slots, const int64_t recent) { return std::max<int64_t>(0, slots - recent) / kPage; }

}  // namespace

template <typename Mark>
void LayerWriter::AddPages(const kernels::ConstKvRows& rows, const int64_t pages, const Mark& mark) {
  const int64_t size = kernels::EncodedPageBytes(layer_.encoding_, layer_.shape_);
  const auto begin = static_cast<int64_t>(layer_.pages_.size());
  const int64_t end = begin + pages * size;
  // The first are as many as they will be for some time; upkeep adds a page now and then, and doubling for it would
  // leave half of the memory empty.
  if (end > static_cast<int64_t>(layer_.pages_.capacity())) layer_.pages_.reserve(begin == 0 ? end : end + end / 8);
  layer_.pages_.resize(end);
  for (int64_t p = 0; p < pages; ++p) {
    kernels::EncodePage(layer_.encoding_, layer_.shape_, rows.Slots(p * kPage, kPage),
                        std::span(layer_.pages_).subspan(begin + p * size, size));
    for (int64_t h = 0; h < layer_.heads(); ++h) {
      for (int64_t s = p * kPage; s < (p + 1) * kPage; ++s) {
        layer_.marks_.push_back(mark(h, s));
        layer_.has_degrees_ = layer_.has_degrees_ || layer_.marks_.back().degree > 1;
      }
    }
  }
}

// Rows go before those that are there.
template <typename Mark>
void LayerWriter::AddTail(const kernels::ConstKvRows& rows, const Mark& mark) {
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<SlotMark> marks;
  keys.reserve(rows.slots * layer_.row_floats());
  values.reserve(rows.slots * layer_.row_floats());
  for (int64_t s = 0; s < rows.slots; ++s) {
    for (int64_t h = 0; h < layer_.heads(); ++h) {
      keys.insert(keys.end(), rows.key(h, s), rows.key(h, s) + layer_.shape_.head_dim);
      values.insert(values.end(), rows.value(h, s), rows.value(h, s) + layer_.shape_.head_dim);
      marks.push_back(mark(h, s));
      Check(marks.back().degree == 1, "slots of the tail stand for one token", h, s);
    }
  }
  const auto insert = [](auto& into, const auto& what) { into.insert(into.begin(), what.begin(), what.end()); };
  insert(layer_.tail_keys_, keys);
  insert(layer_.tail_values_, values);
  insert(layer_.tail_marks_, marks);
}

void LayerWriter::DropTail(const int64_t slots) {
  const auto drop = [](auto& from, const int64_t count) { from.erase(from.begin(), from.begin() + count); };
  drop(layer_.tail_keys_, slots * layer_.row_floats());
  drop(layer_.tail_values_, slots * layer_.row_floats());
  drop(layer_.tail_marks_, slots * layer_.heads());
}

void LayerWriter::Fill(const int64_t tokens, const RowsReader& read, const int64_t recent) {
  Check(layer_.tokens_ == 0, "the view is empty", layer_.tokens_);
  const int64_t pages = PagesBefore(tokens, recent);
  layer_.pages_.reserve(pages * kernels::EncodedPageBytes(layer_.encoding_, layer_.shape_));
  layer_.marks_.reserve(pages * kPage * layer_.heads());
  // A page at a time, so that its rows are in a cache when they are encoded.
  std::vector<float> keys(kPage * layer_.row_floats());
  std::vector<float> values(keys.size());
  const kernels::KvRows rows{keys.data(), values.data(), kPage, kPage * layer_.shape_.head_dim, layer_.shape_.head_dim};
  while (layer_.tokens_ < tokens) {
    const int64_t first = layer_.tokens_;
    const kernels::KvRows some = rows.Slots(0, std::min(kPage, tokens - first));
    read(first, some);
    if (first >= pages * kPage) {
      layer_.Append(some);
      continue;
    }
    AddPages(some, 1, [&](int64_t, const int64_t s) { return SlotMark(static_cast<uint32_t>(first + s)); });
    layer_.tokens_ += kPage;
  }
  layer_.settled_ = layer_.tokens_;
}

void LayerWriter::Promote(const int64_t verified, const int64_t recent) {
  const int64_t pages = PagesBefore(SettledTail(verified), recent);
  const int64_t slots = pages * kPage;
  AddPages(layer_.tail(), pages,
           [&](const int64_t h, const int64_t s) { return layer_.tail_marks_[s * layer_.heads() + h]; });
  DropTail(slots);
  layer_.settled_ = verified;
}

SettledSlots LayerWriter::Gather(const kernels::PageShape& shape, const int64_t tokens, const RowsReader& read,
                                 std::pmr::memory_resource* const scratch) {
  SettledSlots slots(shape, 0, tokens, tokens, scratch);
  read(0, slots.rows());
  for (int64_t h = 0; h < slots.heads(); ++h) {
    for (int64_t s = 0; s < tokens; ++s) slots.marks(h)[s] = SlotMark(static_cast<uint32_t>(s));
  }
  return slots;
}

SettledSlots LayerWriter::Take(const int64_t verified, const int64_t first_page) const {
  const int64_t before = first_page * kPage;
  const int64_t body = layer_.body_slots() - before;
  const int64_t tail = SettledTail(verified);
  SettledSlots slots(layer_.shape_, before, body + tail, verified);
  const kernels::KvRows rows = slots.rows();
  for (int64_t p = first_page; p < layer_.body_pages(); ++p) {
    const int64_t at = (p - first_page) * kPage;
    kernels::DecodePage(layer_.encoding_, layer_.shape_, layer_.page(p), rows.Slots(at, kPage));
    for (int64_t h = 0; h < layer_.heads(); ++h) {
      const auto marks = layer_.page_marks(p).subspan(h * kPage, kPage);
      std::copy(marks.begin(), marks.end(), slots.marks(h).begin() + at);
    }
  }
  const kernels::ConstKvRows from = layer_.tail();
  for (int64_t h = 0; h < layer_.heads(); ++h) {
    for (int64_t s = 0; s < tail; ++s) {
      std::copy_n(from.key(h, s), layer_.shape_.head_dim, slots.key(h, body + s));
      std::copy_n(from.value(h, s), layer_.shape_.head_dim, slots.value(h, body + s));
      slots.marks(h)[body + s] = layer_.tail_marks_[s * layer_.heads() + h];
    }
  }
  return slots;
}

void LayerWriter::Put(SettledSlots& slots, const int64_t recent) {
  layer_.tokens_ = std::max(layer_.tokens_, slots.tokens());
  DropTail(layer_.tail_slots() > 0 ? SettledTail(slots.tokens()) : 0);
  const int64_t older = slots.before() / kPage;
  layer_.pages_.resize(older * kernels::EncodedPageBytes(layer_.encoding_, layer_.shape_));
  layer_.marks_.resize(slots.before() * layer_.heads());
  layer_.has_degrees_ =
      std::any_of(layer_.marks_.begin(), layer_.marks_.end(), [](const SlotMark& mark) { return mark.degree > 1; });
  const kernels::ConstKvRows rows = slots.rows();
  const int64_t pages = PagesBefore(slots.count(), recent);
  const auto mark = [&](const int64_t h, const int64_t s) { return slots.marks(h)[s]; };
  AddPages(rows, pages, mark);
  const int64_t body = pages * kPage;
  AddTail(rows.Slots(body, slots.count() - body),
          [&](const int64_t h, const int64_t s) { return slots.marks(h)[body + s]; });
  layer_.settled_ = slots.tokens();
}

void LayerWriter::EndRound(const int64_t missed_slots) {
  ++layer_.rounds_;
  layer_.missed_slots_ = missed_slots;
  layer_.CheckIntegrity();
}

}  // namespace invar::cache
