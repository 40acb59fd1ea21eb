// See transfer_frames.h. Numbers go into checksums as 64-bit little-endian words, so that both sides hash the same
// bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "base/crc32c.h"
#include "cache/state_shape.h"
#include "engine/transfer/scd_payload.h"
#include "engine/transfer_frames.h"
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

template <typename T>
bool Differs(std::optional<IdentityDifference>& out, const char* const field, const T& consumer, const T& producer) {
  if (consumer == producer) return false;
  out = {.field = field,
         .sentence = fmt::format("{} differs: '{}' on the consumer, '{}' on the producer", field, consumer, producer)};
  return true;
}

}  // namespace

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
         differ("state_bytes", &TransferIdentity::state_bytes) || differ("profile", &TransferIdentity::profile));
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
  const std::array<int64_t, 12> words = {
      static_cast<int64_t>(epoch), identity.protocol,    identity.mtp ? 1 : 0, identity.attention_layers,
      identity.recurrent_layers,   identity.page_tokens, identity.page_bytes,  identity.state_bytes,
      manifest.first_page,         manifest.end,         manifest.chunk_bytes, static_cast<int64_t>(manifest.codec)};
  builder_.Add(std::as_bytes(std::span(words)));
}

void RootHash::Add(const ChunkHeader& header, const std::span<const std::byte> bytes) {
  const HeaderWords words = WordsOf(0, header);
  builder_.Add(std::as_bytes(std::span(words))).Add(bytes);
}

int32_t FirstPageToSend(const int32_t have_kv, const int32_t end) { return std::min(have_kv, end) / kPageTokens; }

ChunkPlan::ChunkPlan(const ManifestFrame& manifest)
    : manifest_(manifest),
      page_bytes_(manifest.identity.page_bytes),
      state_bytes_(manifest.identity.state_bytes),
      pages_(cache::StateShape::PagesFor(manifest.end) - manifest.first_page),
      chunk_bytes_(manifest.chunk_bytes) {
  Check(manifest.first_page >= 0 && pages_ >= 0 && chunk_bytes_ > 0, "a plan is made of a manifest that was checked");
  if (page_bytes_ <= chunk_bytes_) {
    pages_per_chunk_ = page_bytes_ == 0 ? std::max<int64_t>(1, pages_) : chunk_bytes_ / page_bytes_;
  } else {
    chunks_per_page_ = (page_bytes_ + chunk_bytes_ - 1) / chunk_bytes_;
  }
  kv_chunks_ = page_bytes_ == 0 ? 0 : (pages_ + pages_per_chunk_ - 1) / pages_per_chunk_ * chunks_per_page_;
  state_chunks_ = (state_bytes_ + chunk_bytes_ - 1) / chunk_bytes_;
}

// Of a layer that crosses row by row, a chunk needs the tokens up to its last row; of a mapped state, those before the
// tail; of all else, all.
ChunkPlan::ChunkPlan(const ManifestFrame& manifest, const ScdShape& shape, const ScdPoint& point)
    : manifest_(manifest), chunk_bytes_(manifest.chunk_bytes), is_coded_(true) {
  Check(manifest.end > 0 && chunk_bytes_ > 0, "a plan is made of a manifest that was checked");
  const auto end = static_cast<int64_t>(manifest.end);
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const int64_t layer_bytes = ScdLayerBytes(shape, point, i, end);
    const ScdLayerPlan& plan = point.layers[i];
    const auto add = [&](const int64_t from, const int64_t to, const int64_t piece, const auto& tokens_of) {
      for (int64_t offset = from; offset < to; offset += piece) {
        const int64_t bytes = std::min(piece, to - offset);
        codes_.push_back({.kind = ChunkKind::kCodes,
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
    code_bytes_ += layer_bytes;
  }
  std::ranges::stable_sort(codes_, {}, &ChunkHeader::token_end);
  for (size_t i = 0; i < codes_.size(); ++i) codes_[i].index = static_cast<int64_t>(i);
}

ChunkHeader ChunkPlan::At(const int64_t index) const {
  if (is_coded_) return codes_[static_cast<size_t>(index)];
  ChunkHeader header{.index = index, .codec = manifest_.codec};
  if (index >= kv_chunks_) {
    header.kind = ChunkKind::kState;
    header.token_begin = header.token_end = manifest_.end;
    header.offset = (index - kv_chunks_) * chunk_bytes_;
    header.bytes = std::min(chunk_bytes_, state_bytes_ - header.offset);
    return header;
  }
  const int64_t page = index / chunks_per_page_ * pages_per_chunk_;
  const int64_t pages = std::min(pages_per_chunk_, pages_ - page);
  header.token_begin = static_cast<int32_t>((manifest_.first_page + page) * kPageTokens);
  header.token_end = std::min(manifest_.end, header.token_begin + static_cast<int32_t>(pages * kPageTokens));
  header.offset = index % chunks_per_page_ * chunk_bytes_;
  header.bytes = std::min(pages_per_chunk_ * chunk_bytes_, pages * page_bytes_ - header.offset);
  if (chunks_per_page_ > 1) header.bytes = std::min(chunk_bytes_, header.bytes);
  return header;
}

std::vector<std::span<std::byte>> ChunkPlan::PlacesOf(const ChunkHeader& header, cache::PrefixImage& image) const {
  if (header.kind == ChunkKind::kState) {
    return {std::span(image.state).subspan(static_cast<size_t>(header.offset), static_cast<size_t>(header.bytes))};
  }
  std::vector<std::span<std::byte>> places;
  size_t page = static_cast<size_t>(header.token_begin / kPageTokens - manifest_.first_page);
  int64_t offset = header.offset;
  for (int64_t left = header.bytes; left > 0; ++page) {
    const int64_t take = std::min(left, page_bytes_ - offset);
    places.push_back(std::span(image.pages[page]).subspan(static_cast<size_t>(offset), static_cast<size_t>(take)));
    left -= take;
    offset = 0;
  }
  return places;
}

}  // namespace invar::engine
