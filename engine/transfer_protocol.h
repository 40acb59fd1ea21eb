// The words of a transfer between two instances, whatever carries them (server/wire/translate_transfer.h: protobuf):
//
//   consumer                         producer
//   Open {identity, tokens, have} ->                              refused by name where the identities differ
//                                 <- Manifest {identity, range}   once it has the prefix: run, or out of its cache
//   Grant {epoch, credit}         ->                              memory is taken only now, by what the manifest says
//                                 <- Chunk {epoch, header, crc}*  never more bytes than were granted
//   Credit {epoch, bytes}*        ->
//                                 <- Commit {epoch, chunks, root}
//   Ack {epoch}                   ->
// Heartbeats go both ways while nothing else does. A status ends it from the producer's side; from the consumer's, at
// any time after Open:
//   Abort {epoch, reason, why}    ->                              it lets go of all that it has for it, at once
//                                 <- AbortAck {epoch}             the last frame; what crossed the Abort means nothing
// Nothing of it is visible to anybody before the commit was checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/ids.h"
#include "cache/prefix_image.h"
#include "cache/scope.h"
#include "engine/prefix_view.h"
#include "engine/scd_profiles.h"
#include "models/model.h"

namespace invar::engine {

inline constexpr int32_t kTransferProtocol = 4;
// Payload of one chunk at most. Large enough for the rate of a link, small enough to check from a core's cache, and
// with its message below what gRPC takes by default (4 MiB).
inline constexpr int64_t kChunkBytesMax = int64_t{1} << 20;
// Chunks of one transfer at most: 1 MiB each of more than any memory, and what a plan of them takes is small.
inline constexpr int64_t kChunksMax = int64_t{1} << 18;
// A prefix of at least kStreamTokens goes out layer by layer while a step still runs, in codes in pieces of so many
// tokens; below, the messages would cost more than the head start gives (SGLang #23515 lost 18 % at 256 tokens, and won
// from 1K on).
inline constexpr int32_t kStreamTokens = 1024;
inline constexpr int32_t kStreamPieceTokens = 256;
// Both sides send something at least so often; below any lease that may be configured.
inline constexpr TimeNs kTransferBeatNs = 250'000'000;

// What a layer has of every page and of the state, behind what those before it have.
struct LayerBytes {
  int64_t page = 0;
  int64_t state = 0;

  bool operator==(const LayerBytes&) const = default;
};
// In the order in which a forward is done with them: the layers of the stack, then what is only certain at its end: the
// multi-token head's with the last layers that lie beside it, or all of a model that does not say.
std::vector<LayerBytes> LayersOf(const models::ModelSpec& spec);

// Where a layer's bytes begin in every page and in the state.
struct LayerPlace {
  int64_t page_offset = 0;
  int64_t state_offset = 0;
  LayerBytes bytes;
};
std::vector<LayerPlace> LayerPlacesOf(std::span<const LayerBytes> layers);

// Pieces are counted from the last of `pages`, so that the last one is whole: where that ends which has page `page`.
int32_t PieceEnd(int32_t page, int32_t pages, int32_t piece_pages);

// What two instances must agree in, one by one.
struct TransferIdentity {
  int32_t protocol = kTransferProtocol;
  std::string fingerprint;  // Of weights and configuration, RoPE and layer types among it.
  std::string numerics_id;  // Of the arithmetic and the types of KV and state.
  std::string tokenizer;    // Digest of its file; empty: not known.
  bool mtp = false;         // Pages hold the multi-token head's KV too.
  int32_t attention_layers = 0;
  int32_t recurrent_layers = 0;
  int32_t page_tokens = 0;
  int64_t page_bytes = 0;
  int64_t state_bytes = 0;
  std::vector<LayerBytes> layers;  // Of these; none: they cross as a whole.
  std::string profile;             // Of a calibration between other weights; empty: exact.

  bool operator==(const TransferIdentity&) const = default;
};
// Of its layers; where it names none, all of it is one.
std::vector<LayerPlace> LayerPlacesOf(const TransferIdentity& identity);
TransferIdentity IdentityOf(const models::ModelSpec& spec, std::string tokenizer = {});
struct IdentityDifference {
  const char* field = "";
  std::string sentence;  // Begins with the field, and has both values.
};
// The first field in which they differ; nullopt: none.
std::optional<IdentityDifference> DifferenceOf(const TransferIdentity& consumer, const TransferIdentity& producer);
// Alike of what two of other weights must agree in that pass prefixes by `profile`.
std::optional<IdentityDifference> CodedDifferenceOf(const TransferIdentity& consumer, const TransferIdentity& producer,
                                                    const ScdProfile& profile);

enum class ChunkKind : int32_t { kKv = 1, kState = 2, kCodes = 3, kView = 4 };
enum class ChunkCodec : int32_t { kRaw = 1, kScd = 2, kView = 3 };

// Which bytes a chunk brings, said in full: the receiver compares it with what must come next.
struct ChunkHeader {
  int64_t index = 0;
  ChunkKind kind = ChunkKind::kKv;
  int32_t layer = 0;  // Of TransferIdentity::layers; of codes, of the stack; of a view, of the attention layers.
  int32_t token_begin = 0;
  int32_t token_end = 0;  // Of a state, both are the number of tokens before it; of codes, those that it needs.
  // Of its first byte in the layer's part of the page of token_begin, of the state, of codes or of the view.
  int64_t offset = 0;
  int64_t bytes = 0;
  ChunkCodec codec = ChunkCodec::kRaw;

  bool operator==(const ChunkHeader&) const = default;
};

// --- From the consumer ---
struct OpenFrame {
  TransferIdentity identity;
  cache::Scope scope;
  std::vector<TokenId> tokens;
  int32_t have_kv = 0;
  int32_t have_state = 0;
  std::string point = {};  // Of the identity's profile.
  WantedView view = {};    // Given: a compressed view of what lies ready is wanted, in its place.
};
struct GrantFrame {
  uint64_t epoch = 0;  // Of the consumer's choice: what carries another one is not of this transfer.
  int64_t credit_bytes = 0;
};
struct CreditFrame {
  uint64_t epoch = 0;
  int64_t bytes = 0;
};
struct AckFrame {
  uint64_t epoch = 0;
};
// Why a consumer gives up.
enum class AbortReason : int32_t {
  kUnwanted,  // Nobody waits for it any more.
  kRefused,   // The manifest is of another model, version or layout,
  kNoRoom,    // or of more than may be under way there.
  kDamaged,   // A checksum, or the hash of all.
  kProtocol,  // What came is not what comes next.
};
inline constexpr size_t kAbortReasons = 5;
std::string_view NameOf(AbortReason reason);  // "unwanted": for metrics and words.
struct AbortFrame {
  uint64_t epoch = 0;
  AbortReason reason = AbortReason::kUnwanted;
  std::string why = {};
};

// --- From the producer ---
struct ManifestFrame {
  TransferIdentity identity;
  int32_t first_page = 0;
  int32_t end = 0;  // Tokens.
  int64_t chunk_bytes = kChunkBytesMax;
  // KV goes out in pieces of so many pages, counted from the last one, the layers of each one after another; 0: all of
  // it is one.
  int32_t piece_pages = 0;
  ChunkCodec codec = ChunkCodec::kRaw;
  std::string point = {};                // Of kScd.
  std::vector<int64_t> view_bytes = {};  // Of kView: of each attention layer.
};
struct ChunkFrame {
  uint64_t epoch = 0;
  ChunkHeader header;
  uint32_t crc32c = 0;  // ChecksumOf.
  std::string bytes;
};
struct CommitFrame {
  uint64_t epoch = 0;
  int64_t chunks = 0;
  Digest root{};  // RootHash over all chunks.
};

struct AbortAckFrame {
  uint64_t epoch = 0;
};

struct HeartbeatFrame {};  // Either's.

using ConsumerFrame = std::variant<OpenFrame, GrantFrame, CreditFrame, HeartbeatFrame, AckFrame, AbortFrame>;
using ProducerFrame = std::variant<ManifestFrame, ChunkFrame, CommitFrame, HeartbeatFrame, AbortAckFrame>;

// CRC-32C over nine words (int64, little endian: epoch, index, kind, layer, token begin, token end, offset, payload
// bytes, codec), then the bytes.
uint32_t ChecksumOf(uint64_t epoch, const ChunkHeader& header, std::span<const std::byte> bytes);

// SHA-256 of what follows one another without gaps, what the commit names. Words are int64, lengths uint64, all little
// endian.
//   texts      of the manifest's identity fingerprint, numerics id, tokenizer, profile, and the manifest's point: each
//              its length, then its bytes
//   13 words   epoch, protocol, 1 with the multi-token head and else 0, attention layers, recurrent layers, page
//              tokens, page bytes, state bytes, first page, end, chunk bytes, codec, piece pages
//   layers     of the identity, two words each: page bytes, state bytes
//   view       of the manifest, a word each: bytes
//   chunks     each nine words (0 where ChecksumOf has the epoch, then index, kind, layer, token begin, token end,
//              offset, payload bytes, codec), then its payload
class RootHash {
 public:
  RootHash(uint64_t epoch, const ManifestFrame& manifest);
  void Add(const ChunkHeader& header, std::span<const std::byte> bytes);
  Digest Finish() { return builder_.Finish(); }

 private:
  FingerprintBuilder builder_;
};

// The chunks of a manifest, in the order in which they go: both sides make it from the same words, so a chunk that
// came twice, late, cut or from elsewhere is not the next one.
class ChunkPlan {
 public:
  ChunkPlan() = default;
  // Of kRaw: piece after piece, layer after layer; a layer's state behind its last pages. Of kView: the view layer
  // after layer, then the states. Requires: the manifest was checked.
  explicit ChunkPlan(const ManifestFrame& manifest);
  // Of kScd: codes in the order in which their producer has them, then by layer.
  ChunkPlan(const ManifestFrame& manifest, const ScdShape& shape, const ScdPoint& point);
  int64_t count() const { return std::ssize(chunks_); }
  int64_t total_bytes() const { return total_bytes_; }
  int32_t pages() const { return pages_; }
  const ChunkHeader& At(const int64_t index) const { return chunks_[static_cast<size_t>(index)]; }
  // The part of `image` that the chunk is a copy of, piece by piece. Requires: of pages or a state; the image has the
  // manifest's sizes.
  std::vector<std::span<std::byte>> PlacesOf(const ChunkHeader& header, cache::PrefixImage& image) const;
  // Where the chunk begins in all that the plan has of its layer and kind, in order.
  int64_t LayerOffsetOf(const ChunkHeader& header) const;

 private:
  void AddKv(int32_t layer, int32_t begin, int32_t end);  // Of pages from first_page_ on.
  void AddState(int32_t layer);
  void AddView(std::span<const int64_t> view_bytes);
  void Add(ChunkHeader header);

  int32_t first_page_ = 0;
  int32_t end_ = 0;
  int32_t pages_ = 0;
  int64_t chunk_bytes_ = 0;
  std::vector<LayerPlace> layers_;  // Of kRaw and kView.
  std::vector<ChunkHeader> chunks_;
  int64_t total_bytes_ = 0;
};

// What a plan of `manifest` has at most; told without making it. `bytes`: of all.
int64_t ChunksAtMost(const ManifestFrame& manifest, int64_t bytes);

// The first page that must be sent where a consumer with KV of `have_kv` positions gets `end` tokens.
int32_t FirstPageToSend(int32_t have_kv, int32_t end);

}  // namespace invar::engine
