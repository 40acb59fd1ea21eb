// What crosses threads: plain data in (Request), plain data out (TokenEvent through an EventSink).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "engine/scd_profiles.h"

namespace invar::engine {

class DraftOffers;

// The drafter of requests whose guesses come from outside.
inline constexpr char kOfferedDrafter[] = "offered";

// A prefix that is given away as it is: KV in pages from this one on, and the state after all of it.
struct RawExport {
  int32_t first_page = 0;
};

// All numbers resolved: request over model default. Engine::Submit checks them (engine/validate.h has the ranges).
struct SamplingParams {
  float temperature = 1.0F;         // 0, or below kernels::kGreedyBelow: greedy.
  float top_p = 1.0F;               // (0, 1]
  int32_t top_k = 0;                // 0: off.
  float min_p = 0.0F;               // [0, 1]
  float repetition_penalty = 1.0F;  // > 0; over prompt and output.
  float presence_penalty = 0.0F;    // Over output.
  float frequency_penalty = 0.0F;   // Over output.
  uint64_t seed = 0;
  uint32_t output_index = 0;               // Which of n outputs of one prompt: separates their noise.
  std::map<int32_t, float> logit_bias;     // Ordered: iteration reaches the output.
  std::vector<TokenId> allowed_token_ids;  // Empty: all.
};

struct StoppingParams {
  int32_t max_tokens = 0;  // 0: the prompt is run (and scored where asked for), nothing is generated.
  int32_t min_tokens = 0;  // The first so many tokens neither are stop tokens nor count as text of a stop string.
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;  // The model's eos list included unless ignored.
  bool include_stop = false;            // Keep the matched stop string in the text.
};

struct OutputParams {
  std::optional<int32_t> logprobs;  // Alternatives beside the chosen token.
  std::optional<int32_t> prompt_logprobs;
  bool logprob_bits = false;
};

struct Request {
  std::string request_id;
  std::string tenant;
  std::vector<TokenId> prompt;         // At least one.
  const char* prompt_field = "input";  // What the caller calls it, for errors: a literal.
  SamplingParams sampling;
  StoppingParams stopping;
  OutputParams output;
  int32_t priority = 0;      // Higher first.
  TimeNs deadline = kNever;  // On the engine's clock.
  struct Cache {
    std::string salt;            // Requests with different salts share nothing.
    bool bypass_read = false;    // Compute everything.
    bool bypass_write = false;   // Leave nothing.
    std::vector<int32_t> hints;  // Where checkpoints are wanted; one beyond the prompt asks for nothing.
    int32_t stable_tokens = 0;   // Of the prompt, what a follow-up will repeat; 0: not known.
  } cache;
  // Given: tokens behind the prompt are computed on a compressed view of its KV. The answer is approximate.
  struct Approximation {
    std::string compressor;          // A kind, or kind:settings (cache/compressor.h).
    std::optional<float> kv_budget;  // Share of the full KV in bytes, (0, 1]; of kinds that keep all: absent.
  };
  std::optional<Approximation> approximation;
  // Lossless: the answer is that of a run without it, bit for bit.
  struct Speculation {
    std::string drafter;                  // A kind of the engine's; empty: none.
    std::optional<int32_t> draft_tokens;  // Draft so many, whether it pays or not. Absent: as many as pay.
    // What drafts are made on, of drafters that compress, as of Approximation; empty of others.
    std::string compressor;
    std::optional<float> kv_budget;
    std::shared_ptr<DraftOffers> offers = {};  // Of the drafter `offered` alone, which nobody may name otherwise.
  } speculation;
  // What memory lacks of the prompt may come from an instance of equal weights: with the same bits.
  struct Transfer {
    bool allowed = false;
    bool coded = false;         // And from one of other weights, in codes: the answer is approximate then.
    std::string producer = {};  // The one that is known to have it; empty: any.
  } transfer;
  // Given: the prompt is given away while it runs, each part as soon as it is certain: layer by layer
  // (PrefixLayersEvent), or in codes (PrefixCodesEvent). Of requests that generate nothing and, for codes, read nothing
  // from the cache.
  std::variant<std::monostate, RawExport, CodedExport> live_export;
};

// What a request ends with at its deadline, wherever it is.
inline Status DeadlinePassed() {
  return Status(StatusCode::kDeadlineExceeded,
                "the request's deadline has passed: its caller's, or limits.request_timeout of the daemon");
}

struct TokenAlternative {
  TokenId token;
  float logprob = 0.0F;
};
struct TokenLogprob {
  TokenId token;
  float logit = 0.0F;    // Raw, before penalties and temperature.
  float logprob = 0.0F;  // Of the raw distribution: logit - log sum exp.
  std::vector<TokenAlternative> top;
};

struct PrefixReuse {
  int32_t kv_match_tokens = 0;
  int32_t state_match_tokens = 0;
  int32_t recomputed_tokens = 0;
  int32_t computed_tokens = 0;
  // Of state_match_tokens, those that another instance computed for this request.
  int32_t transferred_tokens = 0;
  int64_t transfer_bytes = 0;      // That crossed the link for it, used or not.
  std::string transfer_mode = {};  // How they came: "raw", or the modes of a point; empty: none did.
  // The profile's point and its plans in words, where what it goes on from may be made of codes; empty: it is exact.
  std::string made_of_codes = {};
  std::string transfer_plan = {};  // What was weighed of fetching it, in words.
  // The slowest place it came from: "fast", a tier's name or "peer"; empty: nothing matched.
  std::string tier;
};

// What became of a request's drafts.
struct SpeculationReport {
  int32_t rounds = 0;  // Drafts verified.
  int32_t drafted_tokens = 0;
  int32_t accepted_tokens = 0;
  std::string fallback_reason;       // Why most steps had no draft (stats.h); empty: that was not so.
  int64_t slow_tier_bytes = 0;       // Of its full KV, what lay there at the end, not in the fast tier,
  int64_t slow_tier_bytes_read = 0;  // and what was read of it on the way.
  std::string compressor = {};       // What drafts were made on, with all settings; empty: full KV, or none were.
};

// What an approximate answer was computed on.
struct ViewReport {
  std::string compressor;  // With all settings. Empty: it ended before a view paid.
  int64_t bytes = 0;       // Of bodies, tail and state at the end.
};

struct StartedEvent {
  int32_t prompt_tokens = 0;
  PrefixReuse reuse;
};
struct DeltaEvent {
  std::string text;  // Whole UTF-8, already past stop-string hold-back; may be empty.
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;  // One a token where asked for.
};
// What a layer adds to a prefix that is given away: KV of the pages behind those of before, side by side, and with the
// last of them the state.
struct LayerPart {
  int32_t layer = 0;  // Of TransferIdentity::layers.
  std::vector<std::byte> kv = {};
  std::vector<std::byte> state = {};
};
struct PrefixLayersEvent {
  int32_t piece_pages = 0;  // They come in pieces of so many pages, counted from the last one.
  std::vector<LayerPart> parts = {};
};
// Alike, codes.
struct PrefixCodesEvent {
  std::vector<CodedPart> parts;
};
enum class FinishReason { kStop, kLength };
struct FinishedEvent {
  FinishReason reason = FinishReason::kLength;
  std::variant<std::monostate, std::string, TokenId> matched;  // The stop string or token.
  std::string text_tail;  // Text released at the end, to append after the last delta.
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  int32_t preemptions = 0;
  PrefixReuse reuse;
  std::optional<SpeculationReport> speculation;  // Where the request asked for it.
  std::optional<ViewReport> view;                // Alike, for approximation.
  int64_t kv_bytes = 0;                          // What full KV and state of the sequence take at the end.
  std::vector<TokenLogprob> prompt_logprobs;     // Of prompt tokens 1 and on: nothing comes before the first.
  TimeNs queued_for = 0, prefill_for = 0, decode_for = 0, first_token_after = 0;
};
struct FailedEvent {
  Status status;  // CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE (shutting down), INTERNAL.
};
using TokenEvent =
    std::variant<StartedEvent, DeltaEvent, PrefixLayersEvent, PrefixCodesEvent, FinishedEvent, FailedEvent>;

// Where a request's events go. Called on the engine thread; must not block and must not call the engine back.
// Exactly one Finished or Failed ends the stream.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // False: the reader is behind its bound; the engine pauses this sequence (no more tokens) until Engine::Unpause.
  // The event itself is always taken.
  virtual bool Push(TokenEvent event) = 0;
};

}  // namespace invar::engine
