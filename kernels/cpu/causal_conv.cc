// A task is one span's block of channels.
#include "kernels/cpu/causal_conv.h"

#include <algorithm>

#include "kernels/shared/emit.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kTaskChannels = kMaxConvChannels;  // A KiB of every row.

void ConvolveChannels(const KernelTable& table, const ConvArgs& args, const StateSpan& span, const int64_t channel) {
  const int64_t channels = std::min(kTaskChannels, args.x.cols - channel);
  const auto run = [&](const int64_t begin, const int64_t end) {
    table.conv({.x = args.x.row(span.row_begin + begin) + channel,
                .x_stride = args.x.stride,
                .rows = end - begin,
                .channels = channels,
                .weight = args.weight.data() + channel * args.kernel,
                .kernel = args.kernel,
                .state = span.conv + channel,
                .state_stride = args.x.cols,
                .out = args.out.row(span.row_begin + begin) + channel,
                .out_stride = args.out.stride});
  };
  const auto emit = [&](const EmittedState& to) {
    for (int64_t j = 0; j < args.kernel - 1; ++j) {
      const int64_t at = j * args.x.cols + channel;
      std::copy_n(span.conv + at, channels, to.conv + at);
    }
  };
  ForRowsBetweenEmits(span, 0, span.rows, run, emit);
}

}  // namespace

void RunCausalConv(const KernelTable& table, WorkerPool& pool, const ConvArgs& args) {
  CheckEmits(args.spans);
  const int64_t blocks = (args.x.cols + kTaskChannels - 1) / kTaskChannels;
  pool.ParallelFor(static_cast<int64_t>(args.spans.size()) * blocks, [&](const int64_t task) {
    ConvolveChannels(table, args, args.spans[task / blocks], task % blocks * kTaskChannels);
  });
}

}  // namespace invar::kernels::cpu
