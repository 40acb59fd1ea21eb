// See bound_view.h.
#include "tools/eval/bound_view.h"

namespace invar::eval {

BoundView::BoundView(Subject& subject, const cache::Compressor& compressor, const cache::Budget budget,
                     const engine::QueryLog& log, const int32_t length)
    : subject_(subject), log_(log), kept_up_(length), view_(subject.model(), compressor, budget) {
  view_.Make(subject.exact(), length, &log);
  view_.WriteTail(0, subject.tail());
}

void BoundView::Settle(const int32_t end) {
  view_.TakeFull(subject_.exact(), end - view_.tokens());
  if (end - kept_up_ >= engine::CompressedKv::kUpkeepTokens) {
    view_.Settle(&log_);
    kept_up_ = end;
  }
  view_.WriteTail(0, subject_.tail());
}

double BoundView::bytes_share() const {
  const kernels::PageShape shape = subject_.page_shape();
  const double row = 2.0 * shape.kv_heads * shape.head_dim * static_cast<double>(kernels::BytesOf(shape.dense)) *
                     subject_.spec().attention_layers;
  return (static_cast<double>(view_.body_bytes()) + row * view_.tail_slots()) / (row * tokens());
}

}  // namespace invar::eval
