// See transfer_frames.h. Numbers go into checksums as 64-bit little-endian words, so that both sides hash the same
// bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "base/crc32c.h"
#include "cache/state_shape.h"
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
bool Differs(std::optional<std::string>& out, const char* const field, const T& consumer, const T& producer) {
  if (consumer == producer) return false;
  out = fmt::format("{} differs: '{}' on the consumer, '{}' on the producer", field, consumer, producer);
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

std::optional<std::string> DifferenceOf(const TransferIdentity& consumer, const TransferIdentity& producer) {
  std::optional<std::string> out;
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

uint32_t ChecksumOf(const uint64_t epoch, const ChunkHeader& header, const std::span<const std::byte> bytes) {
  const HeaderWords words = WordsOf(epoch, header);
  return Crc32c(bytes, Crc32c(std::as_bytes(std::span(words))));
}

RootHash::RootHash(const uint64_t epoch, const ManifestFrame& manifest) {
  const TransferIdentity& identity = manifest.identity;
  builder_.AddFramed(identity.fingerprint)
      .AddFramed(identity.numerics_id)
      .AddFramed(identity.tokenizer)
      .AddFramed(identity.profile);
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

ChunkHeader ChunkPlan::At(const int64_t index) const {
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
