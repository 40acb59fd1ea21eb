// Log-probabilities reported beside tokens: of the raw distribution, before penalties, bias and temperature, so that
// they are comparable between requests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/ids.h"
#include "engine/request.h"
#include "kernels/sample.h"

namespace invar::engine {

// `alternatives` most likely tokens beside `token`, best first, ties to the smallest id; `token` itself may be among
// them. Nothing where the row is not finite.
std::optional<TokenLogprob> MakeLogprob(const kernels::RowSampler& rows, std::span<const float> logits,
                                        int32_t usable_ids, TokenId token, int32_t alternatives);

}  // namespace invar::engine
