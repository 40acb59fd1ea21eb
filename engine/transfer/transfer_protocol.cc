// See transfer_protocol.h. Numbers go into checksums as 64-bit little-endian words, so that both sides hash the same
// bytes.
#include "engine/transfer_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "cache/state_shape.h"
#include "engine/transfer/scd_payload.h"
#include "kernels/numerics.h"

namespace invar::engine {
namespace {

using kernels::kPageTokens;

static_assert(std::endian::native == std::endian::little, "words are hashed as they lie in memory");

using HeaderWords = std::array<int64_t, 9>;
HeaderWords WordsOf(const uint64_t epoch, const ChunkHeader& header) {
  return {static_cast<int64_t>(epoch),
          header.index,
          static_cast<int64_t>(header.kind),
          header.layer,
          header.token_begin,
          header.token_end,
          header.offset,
          header.bytes,
          static_cast<int64_t>(header.codec)};
}

// As a sentence prints them.
std::string Printed(const std::vector<LayerBytes>& layers) {
  std::string words;
  for (const LayerBytes& layer : layers) {
    words += fmt::format("{}{}+{}", words.empty() ? "" : ", ", layer.page, layer.state);
  }
  return words;
}
const auto& Printed(const auto& value) { return value; }

template <typename T>
bool Differs(std::optional<IdentityDifference>& out, const char* const field, const T& consumer, const T& producer) {
  if (consumer == producer) return false;
  out = {.field = field,
         .sentence = fmt::format("{} differs: '{}' on the consumer, '{}' on the producer", field, Printed(consumer),
                                 Printed(producer))};
  return true;
}

}  // namespace

std::vector<LayerBytes> LayersOf(const models::ModelSpec& spec) {
  std::vector<LayerBytes> layers(static_cast<size_t>(spec.attention_layers + spec.recurrent_layers) + 1);
  LayerBytes* last_attention = &layers.back();
  LayerBytes* last_recurrent = &layers.back();
  LayerBytes left{.page = spec.page_bytes, .state = spec.state_bytes};
  const std::vector<int64_t>& pages = spec.attention.page_offsets_bytes;
  for (size_t i = 0; i < pages.size(); ++i) {
    last_attention = &layers[static_cast<size_t>(spec.attention.layers[i].value())];
    last_attention->page = (i + 1 < pages.size() ? pages[i + 1] : spec.page_bytes) - pages[i];
    left.page -= last_attention->page;
  }
  const std::vector<models::RecurrentLayerState>& states = spec.recurrent_states;
  for (size_t i = 0; i < states.size(); ++i) {
    const int64_t begin = states[i].recurrent_offset_bytes;
    last_recurrent = &layers[static_cast<size_t>(states[i].layer.value())];
    last_recurrent->state = (i + 1 < states.size() ? states[i + 1].recurrent_offset_bytes : spec.state_bytes) - begin;
    left.state -= last_recurrent->state;
  }
  // The head's part lies behind the last layer's, which waits for it.
  if (spec.mtp.served()) {
    left.page += std::exchange(last_attention->page, 0);
    left.state += std::exchange(last_recurrent->state, 0);
  }
  layers.back() = left;
  return layers;
}

std::vector<LayerPlace> LayerPlacesOf(const std::span<const LayerBytes> layers) {
  std::vector<LayerPlace> places;
  LayerPlace next;
  for (const LayerBytes& bytes : layers) {
    next.bytes = bytes;
    places.push_back(next);
    next.page_offset += bytes.page;
    next.state_offset += bytes.state;
  }
  return places;
}

int32_t PieceEnd(const int32_t page, const int32_t pages, const int32_t piece_pages) {
  return pages - (pages - page - 1) / piece_pages * piece_pages;
}

TransferIdentity IdentityOf(const models::ModelSpec& spec, std::string tokenizer) {
  return {.fingerprint = spec.fingerprint,
          .numerics_id = spec.numerics_id,
          .tokenizer = std::move(tokenizer),
          .mtp = spec.mtp.served(),
          .attention_layers = spec.attention_layers,
          .recurrent_layers = spec.recurrent_layers,
          .page_tokens = kPageTokens,
          .page_bytes = spec.page_bytes,
          .state_bytes = spec.state_bytes,
          .layers = LayersOf(spec),
          .profile = {}};
}

std::optional<IdentityDifference> DifferenceOf(const TransferIdentity& consumer, const TransferIdentity& producer) {
  std::optional<IdentityDifference> out;
  const auto differ = [&](const char* const field, const auto member) {
    return Differs(out, field, consumer.*member, producer.*member);
  };
  (void)(differ("protocol", &TransferIdentity::protocol) || differ("fingerprint", &TransferIdentity::fingerprint) ||
         differ("numerics_id", &TransferIdentity::numerics_id) || differ("tokenizer", &TransferIdentity::tokenizer) ||
         differ("mtp", &TransferIdentity::mtp) || differ("attention_layers", &TransferIdentity::attention_layers) ||
         differ("recurrent_layers", &TransferIdentity::recurrent_layers) ||
         differ("page_tokens", &TransferIdentity::page_tokens) || differ("page_bytes", &TransferIdentity::page_bytes) ||
         differ("state_bytes", &TransferIdentity::state_bytes) || differ("layers", &TransferIdentity::layers) ||
         differ("profile", &TransferIdentity::profile));
  return out;
}

std::optional<IdentityDifference> CodedDifferenceOf(const TransferIdentity& consumer, const TransferIdentity& producer,
                                                    const ScdProfile& profile) {
  std::optional<IdentityDifference> out;
  const auto differ = [&](const char* const field, const auto member) {
    return Differs(out, field, consumer.*member, producer.*member);
  };
  const auto other = [&](const char* const side, const char* const field, const std::string& wanted,
                         const std::string& found) {
    if (wanted == found) return false;
    out = {.field = field,
           .sentence = fmt::format("{} differs: the profile's {} has '{}', this one '{}'", field, side, wanted, found)};
    return true;
  };
  (void)(differ("protocol", &TransferIdentity::protocol) || differ("profile", &TransferIdentity::profile) ||
         differ("tokenizer", &TransferIdentity::tokenizer) || differ("mtp", &TransferIdentity::mtp) ||
         differ("attention_layers", &TransferIdentity::attention_layers) ||
         differ("recurrent_layers", &TransferIdentity::recurrent_layers) ||
         other("consumer", "fingerprint", profile.consumer.fingerprint, consumer.fingerprint) ||
         other("producer", "fingerprint", profile.producer.fingerprint, producer.fingerprint) ||
         other("consumer", "numerics_id", profile.consumer.numerics_id, consumer.numerics_id) ||
         other("producer", "numerics_id", profile.producer.numerics_id, producer.numerics_id));
  return out;
}

std::string_view NameOf(const AbortReason reason) {
  switch (reason) {
    case AbortReason::kUnwanted:
      return "unwanted";
    case AbortReason::kRefused:
      return "refused";
    case AbortReason::kNoRoom:
      return "no_room";
    case AbortReason::kDamaged:
      return "damaged";
    case AbortReason::kProtocol:
      return "protocol";
  }
  return "";
}

std::vector<LayerPlace> LayerPlacesOf(const TransferIdentity& identity) {
  const LayerBytes whole{.page = identity.page_bytes, .state = identity.state_bytes};
  return LayerPlacesOf(identity.layers.empty() ? std::span(&whole, 1) : std::span(identity.layers));
}

uint32_t ChecksumOf(const uint64_t epoch, const ChunkHeader& header, const std::span<const std::byte> bytes) {
  const HeaderWords words = WordsOf(epoch, header);
  return Crc32c(bytes, Crc32c(std::as_bytes(std::span(words))));
}

RootHash::RootHash(const uint64_t epoch, const ManifestFrame& manifest) {
  const TransferIdentity& identity = manifest.identity;
  builder_.AddFramed(identity.fingerprint)
      .AddFramed(identity.numerics_id)
      .AddFramed(identity.tokenizer)
      .AddFramed(identity.profile)
      .AddFramed(manifest.point);
  const std::array<int64_t, 13> words = {
      static_cast<int64_t>(epoch), identity.protocol,    identity.mtp ? 1 : 0, identity.attention_layers,
      identity.recurrent_layers,   identity.page_tokens, identity.page_bytes,  identity.state_bytes,
      manifest.first_page,         manifest.end,         manifest.chunk_bytes, static_cast<int64_t>(manifest.codec),
      manifest.piece_pages};
  builder_.Add(std::as_bytes(std::span(words))).Add(std::as_bytes(std::span(identity.layers)));
  builder_.Add(std::as_bytes(std::span(manifest.view_bytes)));
}

void RootHash::Add(const ChunkHeader& header, const std::span<const std::byte> bytes) {
  const HeaderWords words = WordsOf(0, header);
  builder_.Add(std::as_bytes(std::span(words))).Add(bytes);
}

int32_t FirstPageToSend(const int32_t have_kv, const int32_t end) { return std::min(have_kv, end) / kPageTokens; }

// Chunks of a layer's KV and state may end anywhere, so each layer of each piece may add one that is not full; where a
// layer's part of a page does not fit a chunk twice, chunks are more than half full.
int64_t ChunksAtMost(const ManifestFrame& manifest, const int64_t bytes) {
  const int64_t layers = std::max<int64_t>(1, std::ssize(manifest.identity.layers));
  const int64_t pages = cache::StateShape::PagesFor(manifest.end);
  const int64_t pieces = manifest.piece_pages == 0 ? 1 : pages / manifest.piece_pages + 1;
  return 2 * (bytes / manifest.chunk_bytes) + layers * (pieces + pages * kPageTokens / kStreamPieceTokens + 2) +
         std::ssize(manifest.view_bytes);
}

ChunkPlan::ChunkPlan(const ManifestFrame& manifest)
    : first_page_(manifest.first_page),
      end_(manifest.end),
      pages_(cache::StateShape::PagesFor(manifest.end) - manifest.first_page),
      chunk_bytes_(manifest.chunk_bytes) {
  Check(manifest.first_page >= 0 && pages_ >= 0 && chunk_bytes_ > 0 && manifest.piece_pages >= 0,
        "a plan is made of a manifest that was checked");
  const TransferIdentity& identity = manifest.identity;
  layers_ = LayerPlacesOf(identity);
  const LayerPlace& last = layers_.back();
  const int64_t page_bytes = last.page_offset + last.bytes.page;
  const int64_t state_bytes = last.state_offset + last.bytes.state;
  Check(page_bytes == identity.page_bytes && state_bytes == identity.state_bytes, "layers have all of pages and states",
        page_bytes, state_bytes);
  if (manifest.codec == ChunkCodec::kView) {
    AddView(manifest.view_bytes);
    for (int32_t layer = 0; layer < static_cast<int32_t>(layers_.size()); ++layer) AddState(layer);
    return;
  }
  const int32_t piece = manifest.piece_pages == 0 ? std::max(1, pages_) : manifest.piece_pages;
  int32_t begin = 0;
  do {
    const int32_t end = PieceEnd(begin, pages_, piece);
    for (int32_t layer = 0; layer < static_cast<int32_t>(layers_.size()); ++layer) {
      AddKv(layer, begin, std::min(end, pages_));
      if (end >= pages_) AddState(layer);
    }
    begin = end;
  } while (begin < pages_);
}

void ChunkPlan::Add(ChunkHeader header) {
  header.index = std::ssize(chunks_);
  total_bytes_ += header.bytes;
  chunks_.push_back(header);
}

void ChunkPlan::AddKv(const int32_t layer, const int32_t begin, const int32_t end) {
  const int64_t page_bytes = layers_[static_cast<size_t>(layer)].bytes.page;
  if (page_bytes == 0) return;
  const auto pages_a_chunk = static_cast<int32_t>(std::clamp<int64_t>(chunk_bytes_ / page_bytes, 1, pages_ + 1));
  for (int32_t page = begin; page < end; page += pages_a_chunk) {
    const int32_t last = std::min(end, page + pages_a_chunk);
    const int64_t bytes = (last - page) * page_bytes;
    for (int64_t offset = 0; offset < bytes; offset += chunk_bytes_) {
      Add({.kind = ChunkKind::kKv,
           .layer = layer,
           .token_begin = (first_page_ + page) * kPageTokens,
           .token_end = std::min(end_, (first_page_ + last) * kPageTokens),
           .offset = offset,
           .bytes = std::min(chunk_bytes_, bytes - offset)});
    }
  }
}

void ChunkPlan::AddState(const int32_t layer) {
  const int64_t bytes = layers_[static_cast<size_t>(layer)].bytes.state;
  for (int64_t offset = 0; offset < bytes; offset += chunk_bytes_) {
    Add({.kind = ChunkKind::kState,
         .layer = layer,
         .token_begin = end_,
         .token_end = end_,
         .offset = offset,
         .bytes = std::min(chunk_bytes_, bytes - offset)});
  }
}

void ChunkPlan::AddView(const std::span<const int64_t> view_bytes) {
  for (size_t layer = 0; layer < view_bytes.size(); ++layer) {
    for (int64_t offset = 0; offset < view_bytes[layer]; offset += chunk_bytes_) {
      Add({.kind = ChunkKind::kView,
           .layer = static_cast<int32_t>(layer),
           .token_end = end_,
           .offset = offset,
           .bytes = std::min(chunk_bytes_, view_bytes[layer] - offset),
           .codec = ChunkCodec::kView});
    }
  }
}

// Of a layer that crosses row by row, a chunk needs the tokens up to its last row; of a mapped state, those before the
// tail; of all else, all.
ChunkPlan::ChunkPlan(const ManifestFrame& manifest, const ScdShape& shape, const ScdPoint& point)
    : end_(manifest.end), chunk_bytes_(manifest.chunk_bytes) {
  Check(manifest.end > 0 && chunk_bytes_ > 0, "a plan is made of a manifest that was checked");
  const auto end = static_cast<int64_t>(manifest.end);
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const int64_t layer_bytes = ScdLayerBytes(shape, point, i, end);
    const ScdLayerPlan& plan = point.layers[i];
    const auto add = [&](const int64_t from, const int64_t to, const int64_t piece, const auto& tokens_of) {
      for (int64_t offset = from; offset < to; offset += piece) {
        const int64_t bytes = std::min(piece, to - offset);
        chunks_.push_back({.kind = ChunkKind::kCodes,
                           .layer = static_cast<int32_t>(i),
                           .token_end = static_cast<int32_t>(tokens_of(offset + bytes)),
                           .offset = offset,
                           .bytes = bytes,
                           .codec = ChunkCodec::kScd});
      }
    };
    const auto all = [&](int64_t) { return end; };
    if (ScdRowSourceOf(point, i) != ScdRowSource::kNone) {
      const int64_t row_bytes = layer_bytes / end;
      const int64_t rows = end < kStreamTokens ? end : kStreamPieceTokens;
      const int64_t piece = std::min(rows * row_bytes, std::max<int64_t>(1, chunk_bytes_));
      add(0, layer_bytes, piece, [&](const int64_t to) { return (to + row_bytes - 1) / row_bytes; });
    } else if (plan.mode == ScdMode::kMapState) {
      const ScdTail tail = ScdTailOf(shape.layers[i], plan, end);
      const int64_t state_bytes = tail.whole ? 0 : 2 * shape.layers[i].state_floats();
      add(0, state_bytes, chunk_bytes_, [&](int64_t) { return tail.from; });
      add(state_bytes, layer_bytes, chunk_bytes_, all);
    } else {
      add(0, layer_bytes, chunk_bytes_, all);
    }
    total_bytes_ += layer_bytes;
  }
  std::ranges::stable_sort(chunks_, {}, &ChunkHeader::token_end);
  for (size_t i = 0; i < chunks_.size(); ++i) chunks_[i].index = static_cast<int64_t>(i);
}

int64_t ChunkPlan::LayerOffsetOf(const ChunkHeader& header) const {
  if (header.kind != ChunkKind::kKv) return header.offset;
  const int64_t page_bytes = layers_[static_cast<size_t>(header.layer)].bytes.page;
  return (header.token_begin / kPageTokens - first_page_) * page_bytes + header.offset;
}

std::vector<std::span<std::byte>> ChunkPlan::PlacesOf(const ChunkHeader& header, cache::PrefixImage& image) const {
  const LayerPlace& layer = layers_[static_cast<size_t>(header.layer)];
  if (header.kind == ChunkKind::kState) {
    return {std::span(image.state)
                .subspan(static_cast<size_t>(layer.state_offset + header.offset), static_cast<size_t>(header.bytes))};
  }
  std::vector<std::span<std::byte>> places;
  size_t page = static_cast<size_t>(header.token_begin / kPageTokens - first_page_);
  int64_t offset = header.offset;
  for (int64_t left = header.bytes; left > 0; ++page) {
    const int64_t take = std::min(left, layer.bytes.page - offset);
    places.push_back(std::span(image.pages[page])
                         .subspan(static_cast<size_t>(layer.page_offset + offset), static_cast<size_t>(take)));
    left -= take;
    offset = 0;
  }
  return places;
}

}  // namespace invar::engine
