// Events of the engine as messages of the wire.
#pragma once

#include <cstdint>
#include <string>

#include "engine/request.h"
#include "invar/v1/generation.pb.h"

namespace invar::server {

// What the answer needs to know of the request, beside what the engine is told.
struct AnswerForm {
  std::string request_id;
  std::string model;
  std::string numerics_id;
  bool stream = false;
  bool token_ids = false;
  bool logprobs = false;
  bool logprob_bits = false;
  int64_t seed = 0;
  std::string hand_off = {};  // For whoever decodes what this instance has run; empty: none.
};

// Events to messages. `tokens` as ids; logprobs and bits as the form says.
v1::GenerateResponse StartedMessage(const AnswerForm& form, const engine::StartedEvent& event);
void AppendDelta(const AnswerForm& form, const engine::DeltaEvent& event, v1::Delta& delta);
// Without text, token ids and logprobs, which the caller adds where stream is false.
void FillFinished(const AnswerForm& form, const engine::FinishedEvent& event, v1::Finished& finished);
v1::TokenLogprob LogprobMessage(const AnswerForm& form, const engine::TokenLogprob& logprob);

}  // namespace invar::server
