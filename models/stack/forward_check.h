// What every model requires of a batch, checked once at the top of a forward or an advance: only a bug above can break
// it. Rules of single spans first, then that no two writers share a slot.
#pragma once

#include "models/model.h"

namespace invar::models {

void CheckSpans(const ModelSpec& spec, std::span<const ForwardSpan> spans);
void CheckPart(const ModelSpec& spec, const ForwardSpan& span, const StackPart& part);
void CheckAdvances(const ModelSpec& spec, std::span<const StateAdvance> advances);
void CheckGuesses(const ModelSpec& spec, std::span<const GuessRow> guesses);

}  // namespace invar::models
