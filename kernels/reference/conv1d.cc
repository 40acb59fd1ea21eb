// out[t, c] = silu(sum_j weight[c, j] x[t - kernel + 1 + j, c]); inputs before the span come from the state, which then
// takes the last kernel - 1 inputs.
#include <algorithm>
#include <vector>

#include "kernels/reference/ops.h"
#include "kernels/shared/emit.h"

namespace invar::kernels::reference {

void CausalConv(const ConvArgs& args) {
  const int64_t channels = args.x.cols;
  const int64_t kept = args.kernel - 1;
  CheckEmits(args.spans);
  for (const StateSpan& span : args.spans) {
    std::vector<float> inputs(span.conv, span.conv + kept * channels);  // [kept + rows so far, channels]
    const auto run = [&](const int64_t begin, const int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* row = args.x.row(span.row_begin + r);
        inputs.insert(inputs.end(), row, row + channels);
        for (int64_t c = 0; c < channels; ++c) {
          double sum = 0.0;
          for (int64_t j = 0; j < args.kernel; ++j) {
            sum += static_cast<double>(args.weight[c * args.kernel + j]) * inputs[(r + j) * channels + c];
          }
          args.out.row(span.row_begin + r)[c] = static_cast<float>(Silu(sum));
        }
      }
    };
    const auto emit = [&](const EmittedState& to) { std::copy(inputs.end() - kept * channels, inputs.end(), to.conv); };
    ForRowsBetweenEmits(span, 0, span.rows, run, emit);
    std::copy(inputs.end() - kept * channels, inputs.end(), span.conv);
  }
}

}  // namespace invar::kernels::reference
