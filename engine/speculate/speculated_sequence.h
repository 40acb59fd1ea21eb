// SpeculatedSequence: all that speculation knows of a sequence, and the one thing that it may change of it.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "engine/sample/penalties.h"
#include "engine/slow/away_kv.h"

namespace invar::engine {

class SpeculatedSequence {
 public:
  virtual ~SpeculatedSequence() = default;
  virtual SequenceId id() const = 0;
  virtual const Request& request() const = 0;
  // Prompt, then output; those of them that have run.
  virtual const std::vector<TokenId>& tokens() const = 0;
  virtual int32_t computed() const = 0;
  virtual int32_t output_tokens() const = 0;
  // Tokens that it may yet generate.
  virtual int32_t output_left() const = 0;
  virtual const TokenCounts& counts() const = 0;
  // Its reader is behind.
  virtual bool paused() const = 0;

  // What it holds. Requires: it runs.
  virtual std::span<const PageId> page_ids() const = 0;
  virtual SlotId slot() const = 0;
  // Its first pages that are away, before those of page_ids.
  virtual int32_t away_pages() const = 0;
  virtual const AwayKv* away() const = 0;

  // Guesses for the tokens behind the known ones. Never part of `tokens`: a token gets there by being sampled.
  virtual std::span<const TokenId> draft() const = 0;
  virtual void SetDraft(std::vector<TokenId> draft) = 0;
};

}  // namespace invar::engine
