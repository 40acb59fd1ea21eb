// The words of a run elsewhere: a request whose prefix is on its way from a producer is run there meanwhile, on the
// full KV, and its tokens come here (docs/TRANSFER.md, section 10).
//
//   consumer                              producer
//   Open {identity, request}       ->                                  refused by name where the identities differ
//                                      <- Verified {first, tokens, crc}*   as decoding there samples them
//   Draft {first, tokens}*         ->                                  guesses, verified as any draft
// Heartbeats go both ways while nothing else does; a status ends it, the consumer by going.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "cache/scope.h"
#include "engine/request.h"
#include "engine/transfer_protocol.h"

namespace invar::engine {

struct VerifyOpenFrame {
  TransferIdentity identity;
  cache::Scope scope;
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  StoppingParams stopping;  // Without strings: text is the consumer's.
  OutputParams output;
};
// Counted in output tokens. Without guesses: there are none, go on by yourself for one.
struct DraftFrame {
  int32_t first = 0;
  std::vector<TokenId> tokens = {};
};
struct VerifiedFrame {
  int32_t first = 0;
  std::vector<TokenId> tokens = {};
  std::vector<TokenLogprob> logprobs = {};  // As many where they were asked for, else none.
  uint32_t crc32c = 0;                      // ChecksumOf.
};

using RunConsumerFrame = std::variant<VerifyOpenFrame, DraftFrame, HeartbeatFrame>;
using RunProducerFrame = std::variant<VerifiedFrame, HeartbeatFrame>;

// CRC-32C over int64 words, little endian: first, number of tokens, their ids, number of log-probabilities; of each its
// token, the bits of logit and log-probability, the number of alternatives, and of each of these token and bits.
uint32_t ChecksumOf(const VerifiedFrame& frame);

}  // namespace invar::engine
