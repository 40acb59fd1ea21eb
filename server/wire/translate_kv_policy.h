// How a request wants its KV: exact, drafted on compressed KV, compressed, from another instance.
#pragma once

#include "base/status.h"
#include "engine/request.h"
#include "invar/v1/generation.pb.h"
#include "server/wire/translate.h"

namespace invar::server {

// What can be refused of it without the prompt.
Status CheckKvPolicy(const v1::KvPolicy& policy, const TranslateContext& context);

// Of a LOSSLESS and of an APPROXIMATE request. What they leave open is the deployment's.
engine::Request::Speculation SpeculationOf(const v1::KvPolicy& policy, const TranslateContext& context);
engine::Request::Approximation ApproximationOf(const v1::KvPolicy& policy, const TranslateContext& context);

// Where this instance fetches nothing, what is allowed does not happen. A hand-off allows it where the request is
// silent. Codes give approximate answers, so whoever asks for exact or lossless ones gets none. Requires:
// request.prompt.
Status FillTransfer(const v1::GenerateRequest& proto, const TranslateContext& context, engine::Request& request);

}  // namespace invar::server
