// The model of hashes, for tests and simulation: no weights, no numbers, only "what exactly did this forward read?".
//   entry[layer, p] = hash(layer, p, token p, entry[layer, p - 1])      kept in the pages, read back from them
//   state[layer]    = hash(layer, token p, state[layer])                kept in the slot
//   logits row p    = hash(every entry of 0..p with its place, all states), spread over the vocabulary
// Layers lie side by side in a page, and come one by one where pages are away.
// So a stale page, a page out of order, a slot not reset, a missed roll-back or rows mixed up between sequences change
// the next token at once. Costs about a nanosecond an entry read.
#include "base/fingerprint.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/split_mix64.h"
#include "kernels/numerics.h"
#include "models/model.h"
#include "models/stack/forward_check.h"

namespace invar::models {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;  // 2^64 / golden ratio: neighbouring inputs land far apart.

uint64_t NextEntry(const int32_t layer, const int64_t position, const TokenId token, const uint64_t previous) {
  return MixBits(previous + kGolden * static_cast<uint64_t>(layer + 1) +
                 MixBits(static_cast<uint64_t>(position) << 32 | static_cast<uint32_t>(token.value())));
}

uint64_t NextState(const int32_t layer, const TokenId token, const uint64_t state) {
  return MixBits(state + kGolden * static_cast<uint64_t>(layer + 1001) + static_cast<uint32_t>(token.value()) + 1);
}

// What reading `entry` at `position` adds to the row: position again, so that pages in the wrong order show.
uint64_t ReadEntry(const uint64_t entry, const int64_t position) {
  return MixBits(entry ^ (kGolden * static_cast<uint64_t>(position + 1)));
}

// Spreads one hash over a row: 24-bit steps in [-6, 6), so that temperatures and cut-offs have something to do.
void FillRow(const uint64_t hash, std::span<float> row) {
  for (size_t id = 0; id < row.size(); ++id) {
    const uint64_t bits = MixBits(hash + kGolden * (id + 1)) >> 40;
    row[id] = static_cast<float>(static_cast<int32_t>(bits)) * (12.0F / 16777216.0F) - 6.0F;
  }
}

class FingerprintModel final : public Model {
 public:
  explicit FingerprintModel(const FingerprintOptions& options) : options_(options) {
    Check(options.vocabulary_size > 0 && options.attention_layers > 0 && options.recurrent_layers >= 0,
          "the fingerprint model has a vocabulary and an attention layer");
    spec_.architecture = "fingerprint";
    spec_.fingerprint = ToHex(Sha256("invar fingerprint model 1"));
    spec_.numerics_id = "fingerprint-1";
    spec_.vocabulary_size = options.vocabulary_size;
    spec_.max_sequence_tokens = options.max_sequence_tokens;
    spec_.attention_layers = options.attention_layers;
    spec_.recurrent_layers = options.recurrent_layers;
    spec_.page_bytes = int64_t{8} * kernels::kPageTokens * options.attention_layers;
    if (options.recurrent_layers > 0) {
      spec_.state_bytes = int64_t{8} * options.recurrent_layers + options.state_padding_bytes;
      spec_.state_log_row_bytes = kStateLogAlignment;
    }
    logits_.resize(static_cast<size_t>(options.max_logits_rows) * options.vocabulary_size);
    history_.resize(options.attention_layers);
    edges_.resize(options.attention_layers);
    states_.resize(options.recurrent_layers);
  }

  const ModelSpec& spec() const override { return spec_; }

  kernels::ConstF32View Forward(const SequenceMemory& memory, const std::span<const ForwardSpan> spans) override {
    CheckSpans(spec_, spans);
    int64_t row = 0;
    for (const ForwardSpan& span : spans) {
      row = RunSpan(memory, span, row);
    }
    return {logits_.data(), row, spec_.vocabulary_size, spec_.vocabulary_size};
  }

  // A log's row is the token.
  void Advance(const SequenceMemory& memory, const std::span<const StateAdvance> advances) override {
    if (states_.empty()) return;
    CheckAdvances(spec_, advances);
    for (const StateAdvance& advance : advances) {
      LoadStates(memory, advance.state);
      std::span<const StateCopy> checkpoints = advance.checkpoints;
      for (int32_t i = 0; i < advance.rows; ++i) {
        TokenId token;
        std::memcpy(&token, advance.log.data() + i * spec_.state_log_row_bytes, sizeof token);
        RunState(token);
        PassCheckpoint(memory, advance.first.value() + i + 1, checkpoints);
      }
      StoreStates(memory, advance.state);
    }
  }

 private:
  // [layer][place], 8 bytes an entry. Requires: the position is not away.
  std::byte* EntryAt(const SequenceMemory& memory, const ForwardSpan& span, const int32_t layer,
                     const int64_t position) const {
    const PageId page = span.pages[position / kernels::kPageTokens - span.away_pages];
    return memory.pages + page.value() * spec_.page_bytes +
           8 * (layer * int64_t{kernels::kPageTokens} + position % kernels::kPageTokens);
  }

  static uint64_t Load(const std::byte* at) {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  int64_t RunSpan(const SequenceMemory& memory, const ForwardSpan& span, int64_t row) {
    const int64_t first = span.first.value();
    const int64_t length = static_cast<int64_t>(span.tokens.size());
    ReadHistory(memory, span);
    std::span<const StateCopy> checkpoints = span.checkpoints;
    for (int64_t i = 0; i < length; ++i) {
      RunToken(memory, span, first + i, span.tokens[i]);
      PassCheckpoint(memory, first + i + 1, checkpoints);
      if (i < length - span.logits_rows) continue;
      Check(row < options_.max_logits_rows, "logits rows within the limit", row);
      FillRow(RowHash(), {logits_.data() + row++ * spec_.vocabulary_size, static_cast<size_t>(spec_.vocabulary_size)});
    }
    if (span.state_log.empty()) StoreStates(memory, span.state);
    for (int64_t i = 0; i < length && !span.state_log.empty(); ++i) {
      std::memcpy(span.state_log.data() + i * spec_.state_log_row_bytes, &span.tokens[i], sizeof(TokenId));
    }
    return row;
  }

  // Keeps the states where `checkpoints` begin with `position`.
  void PassCheckpoint(const SequenceMemory& memory, const int64_t position,
                      std::span<const StateCopy>& checkpoints) const {
    if (checkpoints.empty() || checkpoints[0].after.value() != position) return;
    StoreStates(memory, checkpoints[0].to);
    checkpoints = checkpoints.subspan(1);
  }

  std::byte* StateAt(const SequenceMemory& memory, const SlotId slot) const {
    return memory.states + slot.value() * spec_.state_bytes;
  }

  void StoreStates(const SequenceMemory& memory, const SlotId slot) const {
    if (states_.empty()) return;
    const size_t bytes = 8 * states_.size();
    std::memcpy(StateAt(memory, slot), states_.data(), bytes);
    std::memset(StateAt(memory, slot) + bytes, 0, options_.state_padding_bytes);
  }

  void ReadHistory(const SequenceMemory& memory, const ForwardSpan& span) {
    const int64_t away = int64_t{kernels::kPageTokens} * span.away_pages;
    for (int32_t layer = 0; layer < spec_.attention_layers; ++layer) {
      const std::byte* const from = span.away == nullptr ? nullptr : span.away->Layer(layer);
      uint64_t read = 0;
      uint64_t entry = 0;
      for (int64_t p = 0; p < span.first.value(); ++p) {
        entry = Load(p < away ? from + 8 * p : EntryAt(memory, span, layer, p));
        read += ReadEntry(entry, p);
      }
      history_[layer] = read;
      edges_[layer] = entry;
    }
    LoadStates(memory, span.state);
  }

  void LoadStates(const SequenceMemory& memory, const SlotId slot) {
    if (!states_.empty()) std::memcpy(states_.data(), StateAt(memory, slot), 8 * states_.size());
  }

  void RunToken(const SequenceMemory& memory, const ForwardSpan& span, const int64_t position, const TokenId token) {
    for (int32_t layer = 0; layer < spec_.attention_layers; ++layer) {
      std::byte* at = EntryAt(memory, span, layer, position);
      if (position >= span.kv_from.value()) {
        const bool is_first = position == span.first.value();
        const uint64_t previous = is_first ? edges_[layer] : Load(EntryAt(memory, span, layer, position - 1));
        const uint64_t entry = NextEntry(layer, position, token, previous);
        std::memcpy(at, &entry, sizeof entry);
      }
      history_[layer] += ReadEntry(Load(at), position);
    }
    RunState(token);
  }

  void RunState(const TokenId token) {
    for (int32_t layer = 0; layer < spec_.recurrent_layers; ++layer) {
      states_[layer] = NextState(layer, token, states_[layer]);
    }
  }

  uint64_t RowHash() const {
    uint64_t hash = 0;
    for (const uint64_t read : history_) hash = MixBits(hash + read);
    for (const uint64_t state : states_) hash = MixBits(hash + state);
    return hash;
  }

  const FingerprintOptions options_;
  ModelSpec spec_;
  std::vector<float> logits_;
  std::vector<uint64_t> history_;  // Of the running span, a layer: sum over the entries read so far.
  std::vector<uint64_t> edges_;    // Of the running span, a layer: the entry before its first; 0: there is none.
  std::vector<uint64_t> states_;   // Of the running span, a layer.
};

}  // namespace

std::unique_ptr<Model> MakeFingerprintModel(const FingerprintOptions& options) {
  return std::make_unique<FingerprintModel>(options);
}

std::vector<float> FingerprintLogits(const FingerprintOptions& options, const std::span<const TokenId> tokens) {
  uint64_t hash = 0;
  for (int32_t layer = 0; layer < options.attention_layers; ++layer) {
    uint64_t entry = 0;
    uint64_t read = 0;
    for (size_t p = 0; p < tokens.size(); ++p) {
      entry = NextEntry(layer, static_cast<int64_t>(p), tokens[p], entry);
      read += ReadEntry(entry, static_cast<int64_t>(p));
    }
    hash = MixBits(hash + read);
  }
  for (int32_t layer = 0; layer < options.recurrent_layers; ++layer) {
    uint64_t state = 0;
    for (const TokenId token : tokens) state = NextState(layer, token, state);
    hash = MixBits(hash + state);
  }
  std::vector<float> row(options.vocabulary_size);
  FillRow(hash, row);
  return row;
}

}  // namespace invar::models
