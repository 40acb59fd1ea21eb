// What a model looks at while it repeats a context, as KVzip asks (arXiv 2505.23416): behind the context it reads a
// request to repeat it, then the context itself, in pieces, each behind the context alone. Of every position and KV
// head the largest attention is kept that any query of these pieces gives it, its softmax over all that the query sees.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/text.h"
#include "tools/eval/subject.h"

namespace invar::eval {

// As the paper's pieces: a model repeats a longer one less well.
inline constexpr int32_t kPieceTokens = 2048;
// Behind the context, before its first piece.
inline constexpr char kRepeatRequest[] = "\n\nRepeat the previous context exactly.\n\n";
// Tokens before any other piece that say where it begins, as the paper's.
inline constexpr int32_t kLeadTokens = 8;

// Tokens that a subject must have room for behind a context of `tokens` tokens.
int32_t SecondPassTokens(int32_t tokens);

// [attention layers][kv_heads][tokens]. `end`: the place behind `tokens`, which are the exact sequence. Effects: what
// the exact KV holds behind them is lost. Requires: the subject has SecondPassTokens of room.
std::vector<std::vector<float>> SecondPass(Subject& subject, const models::Tokenizer& tokenizer, const Place& end,
                                           std::span<const TokenId> tokens, int64_t piece_tokens = kPieceTokens);

}  // namespace invar::eval
