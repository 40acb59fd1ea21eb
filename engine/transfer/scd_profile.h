// ScdProfile: everything that semantic cache distillation knows of one pair of models. A producer and a consumer that
// hold the same profile can pass a prefix in codes; a profile of any other pair is refused (scd_profile_file.h).
// Source: Semantic Cache Distillation (arXiv 2606.07684); what differs here: docs/SCD.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/transfer/scd_codes.h"
#include "engine/transfer/scd_maps.h"
#include "models/model.h"

namespace invar::engine {

// How one layer of a prefix crosses.
enum class ScdMode : uint8_t {
  kDrop = 0,      // Not at all: zeros. A floor for reports.
  kRaw = 1,       // As the producer has it: KV in bf16, states in f32.
  kRaw4 = 2,      // Attention: the producer's KV in 4 bits. A baseline.
  kReuseKv = 3,   // Attention: codes of the producer's K and of its V, `rank` and `rank_v` numbers a token.
  kReuse = 4,     // Attention: one code of the producer's normalised input for both, `rank` numbers a token.
  kPatch = 5,     // Attention: a code of the input; the consumer's own weights make K and V of what it decodes to.
  kMapState = 6,  // Recurrent: the producer's state, mapped; then the last `tail` tokens run again from input codes.
  kRecompute =
      7,  // The consumer runs the layer: from the tokens, or from what entered the producer's first of a group.
};
inline constexpr std::string_view kScdModeNames[] = {"drop",  "raw",   "raw4",      "reuse_kv",
                                                     "reuse", "patch", "map_state", "recompute"};
constexpr std::string_view ScdModeName(const ScdMode mode) { return kScdModeNames[static_cast<size_t>(mode)]; }

struct ScdLayerPlan {
  ScdMode mode = ScdMode::kRaw;
  CodeBits bits = CodeBits::kInt8;
  int32_t rank = 0;      // Numbers a token of the code (kReuseKv: of keys; kMapState: of the tail's inputs).
  int32_t rank_v = 0;    // kReuseKv: of values.
  int32_t features = 0;  // Of the decoder; 0: linear.
  int32_t tail = 0;      // kMapState: tokens that run again.

  bool operator==(const ScdLayerPlan&) const = default;
};

// A plan in words: "patch 64 int8", "map_state 64 int8, tail 64".
std::string ToWords(const ScdLayerPlan& plan);

// One way to send a whole prefix, a plan a layer.
struct ScdPoint {
  std::string name;
  std::vector<ScdLayerPlan> layers;
};

// What crosses in a point: its modes, each once, in their order, "reuse+patch+map_state"; and every layer's plan in
// words.
std::string ModesOf(const ScdPoint& point);
std::string ToWords(const ScdPoint& point);

struct ScdLayerShape {
  bool recurrent = false;
  // Attention.
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  // Recurrent: state [heads_v, dim_k, dim_v], convolution [conv_rows, conv_dim].
  int32_t heads_k = 0;
  int32_t heads_v = 0;
  int32_t dim_k = 0;
  int32_t dim_v = 0;
  int32_t conv_rows = 0;
  int32_t conv_dim = 0;

  int64_t kv_columns() const { return int64_t{kv_heads} * head_dim; }
  int64_t state_floats() const { return int64_t{heads_v} * dim_k * dim_v; }
  int64_t conv_floats() const { return int64_t{conv_rows} * conv_dim; }
  bool operator==(const ScdLayerShape&) const = default;
};

struct ScdShape {
  int32_t hidden = 0;
  std::vector<ScdLayerShape> layers;

  bool operator==(const ScdShape&) const = default;
};
ScdShape ScdShapeOf(const models::ModelSpec& spec);

// What a side must be for the profile to mean anything to it.
struct ScdSide {
  std::string fingerprint;  // ModelSpec's.
  std::string numerics_id;  // That it was fitted on.
  std::string tokenizer;    // Hex SHA-256 of tokenizer.json.
  std::vector<double> inverse_frequencies;
  double rope_factor = 1.0;

  bool operator==(const ScdSide&) const = default;
};

// An encoder and its decoders, the linear one first.
struct ScdCodec {
  ScdEncoder encoder;
  std::vector<ScdDecoder> decoders;

  // Of a plan's rank and features; null: there is none.
  const ScdDecoder* Find(int32_t rank, int32_t features) const;
};

// What was fitted of one layer; what its kind or the profile's points do not need is empty.
struct ScdLayerFit {
  ScdCodec keys;       // K to K, rope taken off.
  ScdCodec values;     // V to V.
  ScdCodec joint;      // Input to [K | V].
  ScdCodec inputs;     // Input to input.
  ScdStateMap states;  // Without heads for attention layers.
};

// How far answers behind a reconstructed prefix are from the consumer's own, on text that nothing was fitted to.
struct ScdQuality {
  double kl = 0.0;                // KL(own || behind the point), nats a token.
  double top1_agreement = 0.0;    // Share of tokens with the same most likely successor.
  double attention_cosine = 0.0;  // Of attention outputs, mean over layers, rows and heads; 1 without attention.
};

struct ScdProfile {
  ScdSide producer;
  ScdSide consumer;
  ScdShape shape;
  std::string calibration;  // Hex SHA-256 of text and settings that it was fitted with.
  std::vector<ScdLayerFit> layers;
  std::vector<ScdPoint> points;
  std::vector<ScdQuality> qualities;  // Of each point.
};

// Bytes and work of a prefix of `tokens` tokens sent by `point`.
int64_t ScdLayerBytes(const ScdShape& shape, const ScdPoint& point, size_t layer, int64_t tokens);
int64_t ScdPayloadBytes(const ScdShape& shape, const ScdPoint& point, int64_t tokens);
struct ScdWork {
  double recompute_flops = 0.0;    // Of the consumer's own weights.
  double reconstruct_flops = 0.0;  // Of decoders and maps.
};
ScdWork ScdWorkOf(const ScdProfile& profile, const models::ModelSpec& consumer, const ScdPoint& point, int64_t tokens);
// Of a whole prefill of so many tokens by the consumer, attention over positions included.
double ScdPrefillFlops(const models::ModelSpec& consumer, int64_t tokens);

// INVALID_ARGUMENT where a plan asks for a mode its layer's kind has not, or a code that is not fitted; `layer` is
// named.
Status CheckScdPoint(const ScdProfile& profile, const ScdPoint& point);

}  // namespace invar::engine
