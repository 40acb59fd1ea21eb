// Sampling, stopping and output of a request.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/request.h"
#include "invar/v1/generation.pb.h"
#include "server/wire/translate.h"

namespace invar::server {

// The numbers of `params` are the model's defaults where the request gives none.
Status FillSampling(const v1::Sampling& proto, const TranslateContext& context, engine::SamplingParams& params);
// `output_max`: of a request that says nothing.
Status FillStopping(const v1::Stopping& proto, int64_t output_max, const TranslateContext& context,
                    engine::StoppingParams& params);
// The last message holds the log-probabilities of the prompt and, where nothing is streamed, those of the whole output.
// Judged by what may come, before anything is computed.
Status FillOutput(const v1::GenerateRequest& request, int64_t prompt_tokens, int64_t output_tokens,
                  const TranslateContext& context, engine::OutputParams& params);

// Drawn where a caller leaves out what must be its own: seeds, names of requests.
uint64_t RandomBits();

}  // namespace invar::server
