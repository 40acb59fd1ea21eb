// The words of a transfer by themselves: a plan covers every byte once, identities are compared field by field, and no
// frame that was changed on its way is taken for the one that was sent.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "cache/state_shape.h"
#include "engine/prefix_receiver.h"
#include "engine/prefix_sender.h"
#include "kernels/numerics.h"

namespace invar::engine {
namespace {

// Of three layers that have a part of pages, of states or of both; the last one has nothing.
TransferIdentity Identity(const int64_t page_bytes, const int64_t state_bytes) {
  const int64_t page = page_bytes / 3;
  const int64_t state = state_bytes / 4;
  return {.fingerprint = "weights",
          .numerics_id = "numerics",
          .tokenizer = "tokenizer",
          .mtp = false,
          .attention_layers = 2,
          .recurrent_layers = 6,
          .page_tokens = kernels::kPageTokens,
          .page_bytes = page_bytes,
          .state_bytes = state_bytes,
          .layers = {{.page = page}, {.state = state}, {page_bytes - page, state_bytes - state}, {}},
          .profile = {}};
}

cache::PrefixImage ImageOf(const TransferIdentity& identity, const int32_t first_page, const int32_t end) {
  cache::PrefixImage image{.first_page = first_page, .end = end};
  std::mt19937 random(1);
  image.pages.resize(static_cast<size_t>(cache::StateShape::PagesFor(end) - first_page));
  for (auto& page : image.pages) page.resize(static_cast<size_t>(identity.page_bytes));
  image.state.resize(static_cast<size_t>(identity.state_bytes));
  for (auto& page : image.pages) {
    for (std::byte& byte : page) byte = static_cast<std::byte>(random());
  }
  for (std::byte& byte : image.state) byte = static_cast<std::byte>(random());
  return image;
}

TEST(Crc32c, IsThatOfTheStandardAndOfItsDefinition) {
  const std::string digits = "123456789";
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(digits))), 0xE3069283U);
  std::mt19937 random(1);
  for (size_t size = 0; size < 70; ++size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const uint32_t before = static_cast<uint32_t>(random());
    EXPECT_EQ(Crc32c(bytes, before), Crc32cByBits(bytes, before)) << size;
  }
}

TEST(ChunkPlan, CoversEveryByteOnceInOrder) {
  for (const int64_t page_bytes : {0, 1, 100, 4096, 5000}) {
    for (const int64_t state_bytes : {0, 1, 100, 5000}) {
      for (const int64_t chunk_bytes : {1, 7, 100, 4096, 9000, 100'000}) {
        for (const auto& [first_page, end] : {std::pair{0, 1}, {0, 64}, {0, 65}, {1, 64}, {2, 200}, {3, 512}}) {
          if (page_bytes + state_bytes > 9000 && chunk_bytes < 100) continue;  // The same, in many more chunks.
          for (const int32_t piece_pages : {0, 1, 3, 100}) {
            const TransferIdentity identity = Identity(page_bytes, state_bytes);
            cache::PrefixImage image = ImageOf(identity, first_page, end);
            const ManifestFrame manifest{.identity = identity,
                                         .first_page = first_page,
                                         .end = end,
                                         .chunk_bytes = chunk_bytes,
                                         .piece_pages = piece_pages};
            const ChunkPlan plan(manifest);
            std::vector<const std::byte*> touched;
            int64_t total = 0;
            for (int64_t i = 0; i < plan.count(); ++i) {
              const ChunkHeader& header = plan.At(i);
              ASSERT_EQ(header.index, i);
              ASSERT_GT(header.bytes, 0);
              ASSERT_LE(header.bytes, chunk_bytes);
              int64_t bytes = 0;
              for (const auto place : plan.PlacesOf(header, image)) {
                for (const std::byte& byte : place) touched.push_back(&byte);
                bytes += static_cast<int64_t>(place.size());
              }
              ASSERT_EQ(bytes, header.bytes);
              total += bytes;
              if (header.kind != ChunkKind::kKv) continue;
              ASSERT_GE(header.token_begin, first_page * kernels::kPageTokens);
              ASSERT_LE(header.token_end, end);
            }
            ASSERT_EQ(total, plan.total_bytes());
            ASSERT_LE(plan.count(), ChunksAtMost(manifest, total));
            // Pieces that are whole but for the first, the layers of each one after another, states with the last.
            std::vector<const std::byte*> wanted;
            const int32_t pages = plan.pages();
            const int32_t piece = piece_pages == 0 || piece_pages > pages ? std::max(1, pages) : piece_pages;
            int32_t from = 0;
            for (int32_t to = pages % piece == 0 ? std::min(piece, pages) : pages % piece;; to += piece) {
              int64_t page_offset = 0;
              int64_t state_offset = 0;
              for (const LayerBytes& layer : identity.layers) {
                for (int32_t page = from; page < to; ++page) {
                  const std::byte* const begin = image.pages[static_cast<size_t>(page)].data() + page_offset;
                  for (int64_t i = 0; i < layer.page; ++i) wanted.push_back(begin + i);
                }
                for (int64_t i = 0; to == pages && i < layer.state; ++i) {
                  wanted.push_back(image.state.data() + state_offset + i);
                }
                page_offset += layer.page;
                state_offset += layer.state;
              }
              from = to;
              if (to == pages) break;
            }
            ASSERT_EQ(touched, wanted) << page_bytes << " " << state_bytes << " " << chunk_bytes << " " << first_page
                                       << " " << end << " " << piece_pages;
          }
        }
      }
    }
  }
}

TEST(TransferIdentity, SaysWhatEachLayerHasOfPagesAndStates) {
  models::ModelSpec spec;
  spec.attention_layers = 2;
  spec.recurrent_layers = 2;
  spec.page_bytes = 64;
  spec.state_bytes = 48;
  spec.attention.layers = {LayerIndex(1), LayerIndex(3)};
  spec.attention.page_offsets_bytes = {0, 30};
  spec.recurrent_states = {{.layer = LayerIndex(0)}, {.layer = LayerIndex(2), .recurrent_offset_bytes = 20}};
  using Layers = std::vector<LayerBytes>;
  EXPECT_EQ(LayersOf(spec), (Layers{{.state = 20}, {.page = 30}, {.state = 28}, {.page = 34}, {}}));
  // What the multi-token head has lies behind the last layer's, and is only certain at the end of a forward.
  spec.mtp.why_not.clear();
  EXPECT_EQ(LayersOf(spec), (Layers{{.state = 20}, {.page = 30}, {}, {}, {.page = 34, .state = 28}}));
  // One that does not say where its layers lie gives them all at the end.
  spec.attention = {};
  spec.recurrent_states.clear();
  EXPECT_EQ(LayersOf(spec), (Layers{{}, {}, {}, {}, {.page = 64, .state = 48}}));
}

// Bug case 36: two sides that differ in anything never transfer something that "works".
TEST(TransferIdentity, NamesTheFieldInWhichTheTwoDiffer) {
  const TransferIdentity ours = Identity(100, 10);
  const std::vector<std::pair<std::string, void (*)(TransferIdentity&)>> changes = {
      {"protocol", [](TransferIdentity& i) { ++i.protocol; }},
      {"fingerprint", [](TransferIdentity& i) { i.fingerprint += "x"; }},
      {"numerics_id", [](TransferIdentity& i) { i.numerics_id = "fp32"; }},
      {"tokenizer", [](TransferIdentity& i) { i.tokenizer = ""; }},
      {"mtp", [](TransferIdentity& i) { i.mtp = true; }},
      {"attention_layers", [](TransferIdentity& i) { ++i.attention_layers; }},
      {"recurrent_layers", [](TransferIdentity& i) { --i.recurrent_layers; }},
      {"page_tokens", [](TransferIdentity& i) { i.page_tokens *= 2; }},
      {"page_bytes", [](TransferIdentity& i) { ++i.page_bytes; }},
      {"state_bytes", [](TransferIdentity& i) { ++i.state_bytes; }},
      {"layers", [](TransferIdentity& i) { std::swap(i.layers[0], i.layers[1]); }},
      {"profile", [](TransferIdentity& i) { i.profile = "calibrated"; }},
  };
  EXPECT_EQ(DifferenceOf(ours, ours), std::nullopt);
  for (const auto& [field, change] : changes) {
    TransferIdentity theirs = ours;
    change(theirs);
    ASSERT_TRUE(DifferenceOf(ours, theirs).has_value()) << field;
    EXPECT_EQ(DifferenceOf(ours, theirs)->field, field);
    EXPECT_TRUE(DifferenceOf(ours, theirs)->sentence.starts_with(field + " differs"));
    // Both ends look, so that one of another version which does not changes nothing.
    PrefixSender sender(theirs, {.tokens_max = 1000, .salt_bytes_max = 10});
    const Status opened = sender.Open({.identity = ours, .scope = {}, .tokens = std::vector<TokenId>(10)});
    EXPECT_EQ(opened.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(opened.message().find(field), std::string::npos) << opened.message();
    EXPECT_EQ(opened.field(), "open.identity." + field);
    EXPECT_EQ(opened.reason(), "PREFIX_DIFFERS");
    PrefixReceiver receiver({.identity = ours, .credit_bytes = kChunkBytesMax, .bytes_max = 1 << 20},
                            {.tokens = std::vector<TokenId>(10)});
    receiver.On(ManifestFrame{.identity = theirs, .end = 10});
    EXPECT_EQ(receiver.Take().fault, TransferFault::kRefused) << field;
  }
}

TEST(PrefixSender, RefusesWhatItWasNotMadeFor) {
  const TransferIdentity identity = Identity(100, 10);
  const auto code_of = [&](const OpenFrame& open) {
    return PrefixSender(identity, {.tokens_max = 100, .salt_bytes_max = 4}).Open(open).code();
  };
  const OpenFrame good{.identity = identity, .scope = {}, .tokens = std::vector<TokenId>(10)};
  EXPECT_EQ(code_of(good), StatusCode::kOk);
  OpenFrame bad = good;
  bad.tokens.clear();
  EXPECT_EQ(code_of(bad), StatusCode::kInvalidArgument);
  bad.tokens.resize(101);
  EXPECT_EQ(code_of(bad), StatusCode::kInvalidArgument);
  bad = good;
  bad.scope.salt = "salted";
  EXPECT_EQ(code_of(bad), StatusCode::kInvalidArgument);
  bad = good;
  bad.scope.provenance = "centroid";
  EXPECT_EQ(code_of(bad), StatusCode::kFailedPrecondition) << "what is approximate has no exact prefix";
  bad = good;
  bad.have_kv = -1;
  EXPECT_EQ(code_of(bad), StatusCode::kInvalidArgument);
  bad = good;
  bad.have_state = 10;
  EXPECT_EQ(code_of(bad), StatusCode::kInvalidArgument);
}

TEST(PrefixReceiver, TakesNoMemoryByAManifestThatLies) {
  const TransferIdentity identity = Identity(100, 10);
  const auto fault_of = [&](const ManifestFrame& manifest) {
    PrefixReceiver receiver({.identity = identity, .credit_bytes = kChunkBytesMax, .bytes_max = 1000},
                            {.tokens = std::vector<TokenId>(1000), .have_kv = 100, .have_state = 50});
    receiver.On(manifest);
    if (!receiver.has_ended()) return std::optional<TransferFault>();
    return receiver.Take().fault;
  };
  const ManifestFrame good{.identity = identity, .first_page = 1, .end = 300};
  EXPECT_EQ(fault_of(good), std::nullopt);
  for (const int32_t end : {-1, 0, 50, 1001, INT32_MAX, INT32_MIN}) {
    ManifestFrame bad = good;
    bad.end = end;
    EXPECT_EQ(fault_of(bad), TransferFault::kProtocol) << end;
  }
  for (const int32_t first_page : {-1, 0, 2, INT32_MAX}) {
    ManifestFrame bad = good;
    bad.first_page = first_page;
    EXPECT_EQ(fault_of(bad), TransferFault::kProtocol) << first_page;
  }
  for (const int32_t pages : {-1, INT32_MIN}) {
    ManifestFrame bad = good;
    bad.piece_pages = pages;
    EXPECT_EQ(fault_of(bad), TransferFault::kProtocol) << pages;
  }
  for (const int64_t chunk_bytes : {int64_t{-1}, int64_t{0}, kChunkBytesMax + 1, INT64_MAX}) {
    ManifestFrame bad = good;
    bad.chunk_bytes = chunk_bytes;
    EXPECT_EQ(fault_of(bad), TransferFault::kProtocol) << chunk_bytes;
  }
  ManifestFrame large = good;
  large.end = 1000;
  EXPECT_EQ(fault_of(large), TransferFault::kNoRoom);
  // What would fit, in a plan that would not.
  const TransferIdentity coarse = Identity(1 << 20, 10);
  PrefixReceiver receiver({.identity = coarse, .credit_bytes = kChunkBytesMax, .bytes_max = 1 << 30},
                          {.tokens = std::vector<TokenId>(1000)});
  receiver.On(ManifestFrame{.identity = coarse, .end = 1000, .chunk_bytes = 1});
  EXPECT_EQ(receiver.Take().fault, TransferFault::kProtocol);
}

// The bytes that a checksum and a root are of, put together as transfer.proto tells a stranger to.
struct ByWords {
  std::vector<std::byte> bytes = {};

  void Number(const int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<std::byte>(value >> shift));
  }
  void Raw(const std::string_view text) {
    for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  }
  void Framed(const std::string_view text) {
    Number(std::ssize(text));
    Raw(text);
  }
};

TEST(RootHash, IsOfTheBytesThatTheWireSays) {
  const ManifestFrame manifest{.identity = {.protocol = 31,
                                            .fingerprint = "weights",
                                            .numerics_id = "numerics",
                                            .tokenizer = "tokens",
                                            .mtp = true,
                                            .attention_layers = 32,
                                            .recurrent_layers = 33,
                                            .page_tokens = 34,
                                            .page_bytes = 35,
                                            .state_bytes = 36,
                                            .layers = {{37, 38}, {39, 40}},
                                            .profile = "profile"},
                               .first_page = 41,
                               .end = 42,
                               .chunk_bytes = 43,
                               .piece_pages = 44,
                               .codec = ChunkCodec::kScd,
                               .point = "point"};
  const ChunkHeader header{.index = 50,
                           .kind = ChunkKind::kState,
                           .layer = 51,
                           .token_begin = 52,
                           .token_end = 53,
                           .offset = 54,
                           .bytes = 3,
                           .codec = ChunkCodec::kRaw};
  const std::string payload = "abc";
  const auto payload_bytes = std::as_bytes(std::span(payload));
  const uint64_t epoch = 0x8877665544332211;

  ByWords root;
  for (const char* const text : {"weights", "numerics", "tokens", "profile", "point"}) root.Framed(text);
  root.Number(static_cast<int64_t>(epoch));
  for (const int64_t word : {31, 1, 32, 33, 34, 35, 36, 41, 42, 43, 2, 44}) root.Number(word);
  for (const int64_t word : {37, 38, 39, 40}) root.Number(word);
  for (const int64_t word : {0, 50, 2, 51, 52, 53, 54, 3, 1}) root.Number(word);
  root.Raw(payload);
  RootHash hash(epoch, manifest);
  hash.Add(header, payload_bytes);
  EXPECT_EQ(hash.Finish(), FingerprintBuilder().Add(root.bytes).Finish());

  ByWords chunk;
  chunk.Number(static_cast<int64_t>(epoch));
  for (const int64_t word : {50, 2, 51, 52, 53, 54, 3, 1}) chunk.Number(word);
  chunk.Raw(payload);
  EXPECT_EQ(ChecksumOf(epoch, header, payload_bytes), Crc32c(chunk.bytes));
}

TEST(PrefixSender, NeverSendsBeyondItsCredit) {
  TransferIdentity identity = Identity(1000, 500);
  identity.layers = {{1000, 500}};
  PrefixSender sender(identity, {.tokens_max = 1000, .salt_bytes_max = 0, .chunk_bytes = 300});
  ASSERT_TRUE(sender.Open({.identity = identity, .scope = {}, .tokens = std::vector<TokenId>(100)}).ok());
  EXPECT_EQ(sender.prefix_bytes(), 2 * identity.page_bytes + identity.state_bytes) << "a page is 64 tokens";
  EXPECT_FALSE(sender.Next().has_value());
  sender.Offer(ImageOf(identity, 0, 100));
  ASSERT_TRUE(std::holds_alternative<ManifestFrame>(sender.Next().value()));
  EXPECT_FALSE(sender.Next().has_value()) << "nothing was granted";
  EXPECT_EQ(sender.On(CreditFrame{.epoch = 7, .bytes = 100}).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(sender.On(GrantFrame{.epoch = 7, .credit_bytes = 700}).ok());
  EXPECT_TRUE(sender.Next().has_value());
  EXPECT_TRUE(sender.Next().has_value());
  EXPECT_FALSE(sender.Next().has_value()) << "100 bytes are left, and the next chunk has 300";
  EXPECT_EQ(sender.On(CreditFrame{.epoch = 8, .bytes = 1000}).code(), StatusCode::kInvalidArgument) << "another epoch";
  EXPECT_EQ(sender.On(CreditFrame{.epoch = 7, .bytes = -1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(sender.On(CreditFrame{.epoch = 7, .bytes = INT64_MAX}).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(sender.On(CreditFrame{.epoch = 7, .bytes = 1'000'000}).ok());
  int chunks = 2;
  while (std::holds_alternative<ChunkFrame>(sender.Next().value())) ++chunks;
  EXPECT_EQ(chunks, 10) << "two pages in four parts each, and the state in two";
  EXPECT_EQ(sender.On(AckFrame{.epoch = 8}).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(sender.acknowledged());
  EXPECT_TRUE(sender.On(AckFrame{.epoch = 7}).ok());
  EXPECT_TRUE(sender.acknowledged());
}

// At any moment of a transfer: its memory goes at once, the answer is the last word, and what crosses it means nothing.
TEST(PrefixSender, LetsGoAtOnceOfWhatItsConsumerGivesUp) {
  TransferIdentity identity = Identity(1000, 500);
  identity.layers = {{1000, 500}};
  for (int moment = 0; moment < 5; ++moment) {
    PrefixSender sender(identity, {.tokens_max = 1000, .salt_bytes_max = 0, .chunk_bytes = 300});
    ASSERT_TRUE(sender.Open({.identity = identity, .scope = {}, .tokens = std::vector<TokenId>(100)}).ok());
    if (moment > 0) sender.Offer(ImageOf(identity, 0, 100));
    if (moment > 1) sender.Next();
    if (moment > 2) {
      ASSERT_TRUE(sender.On(GrantFrame{.epoch = 7, .credit_bytes = 1 << 20}).ok());
      EXPECT_EQ(sender.On(AbortFrame{.epoch = 8}).code(), StatusCode::kInvalidArgument) << "of another transfer";
      EXPECT_FALSE(sender.aborted().has_value());
      sender.Next();
    }
    while (moment == 4 && sender.Next().has_value()) {
    }
    EXPECT_EQ(sender.memory_bytes(), moment == 0 || moment == 4 ? 0 : 2500) << moment;
    ASSERT_TRUE(sender.On(AbortFrame{.epoch = 7, .reason = AbortReason::kNoRoom, .why = "why"}).ok());
    EXPECT_EQ(sender.memory_bytes(), 0);
    EXPECT_EQ(sender.aborted()->reason, AbortReason::kNoRoom);
    EXPECT_FALSE(sender.released());
    EXPECT_TRUE(sender.On(CreditFrame{.epoch = 7, .bytes = 100}).ok());
    EXPECT_TRUE(sender.On(GrantFrame{.epoch = 7, .credit_bytes = 100}).ok());
    EXPECT_TRUE(sender.On(AckFrame{.epoch = 7}).ok());
    EXPECT_FALSE(sender.acknowledged());
    const ProducerFrame answer = sender.Next().value();
    EXPECT_EQ(std::get<AbortAckFrame>(answer).epoch, 7U);
    EXPECT_TRUE(sender.released());
    EXPECT_FALSE(sender.Next().has_value());
  }
}

TEST(PrefixReceiver, IsReleasedByTheAnswerToItsAbortAlone) {
  const TransferIdentity identity = Identity(1000, 500);
  const auto receiver = [&] {
    return PrefixReceiver({.identity = identity, .epoch = 7, .credit_bytes = 1 << 20, .bytes_max = 1 << 20},
                          {.tokens = std::vector<TokenId>(100)});
  };
  PrefixReceiver gave_up = receiver();
  const auto said = gave_up.GiveUp(TransferFault::kDamaged, "why");
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(std::get<AbortFrame>(said[0]).epoch, 7U);
  EXPECT_EQ(std::get<AbortFrame>(said[0]).reason, AbortReason::kDamaged);
  EXPECT_TRUE(gave_up.GiveUp(TransferFault::kNoRoom, "again").empty()) << "it is said once";
  ChunkFrame crossed;
  crossed.epoch = 7;
  EXPECT_TRUE(gave_up.On(crossed).empty());
  EXPECT_TRUE(gave_up.On(AbortAckFrame{.epoch = 8}).empty());
  EXPECT_FALSE(gave_up.is_released()) << "of another transfer";
  EXPECT_TRUE(gave_up.On(AbortAckFrame{.epoch = 7}).empty());
  EXPECT_TRUE(gave_up.is_released());
  EXPECT_EQ(gave_up.Take().fault, TransferFault::kDamaged);

  PrefixReceiver did_not = receiver();
  EXPECT_EQ(did_not.On(AbortAckFrame{.epoch = 7}).size(), 1U);
  EXPECT_FALSE(did_not.is_released());
  EXPECT_EQ(did_not.Take().fault, TransferFault::kProtocol);
}

TEST(PrefixSender, SendsWhatIsThereWhileTheRestIsComputed) {
  const TransferIdentity identity = Identity(100, 50);
  for (const int64_t chunk_bytes : {30, 100, 250, 1000}) {
    PrefixSender sender(identity, {.tokens_max = 1000, .salt_bytes_max = 0, .chunk_bytes = chunk_bytes});
    const std::vector<TokenId> tokens(300);
    ASSERT_TRUE(sender.Open({.identity = identity, .scope = {}, .tokens = tokens}).ok());
    PrefixReceiver receiver({.identity = identity, .epoch = 1, .credit_bytes = 1 << 20, .bytes_max = 1 << 20},
                            {.tokens = tokens});
    int64_t sent = 0;
    const auto carry = [&] {
      while (std::optional<ProducerFrame> frame = sender.Next()) {
        if (const auto* const chunk = std::get_if<ChunkFrame>(&*frame)) sent += chunk->header.bytes;
        for (const ConsumerFrame& answer : receiver.On(*frame)) ASSERT_TRUE(sender.On(answer).ok());
      }
    };
    // Five pages in pieces of two, a layer at a time.
    const cache::PrefixImage image = ImageOf(identity, 0, 300);
    int64_t there = 0;
    int32_t from = 0;
    for (const int32_t to : {1, 3, 5}) {
      int64_t page_offset = 0;
      int64_t state_offset = 0;
      for (size_t layer = 0; layer < identity.layers.size(); ++layer) {
        const LayerBytes& bytes = identity.layers[layer];
        LayerPart part{.layer = static_cast<int32_t>(layer)};
        part.kv.reserve(static_cast<size_t>((to - from) * bytes.page));
        for (int32_t page = from; page < to; ++page) {
          const auto begin = image.pages[static_cast<size_t>(page)].begin() + page_offset;
          part.kv.insert(part.kv.end(), begin, begin + bytes.page);
        }
        if (to == 5) {
          part.state.assign(image.state.begin() + state_offset, image.state.begin() + state_offset + bytes.state);
        }
        page_offset += bytes.page;
        state_offset += bytes.state;
        there += std::ssize(part.kv) + std::ssize(part.state);
        PrefixLayers more{.first_page = 0, .end = 300, .piece_pages = 2};
        more.layers.push_back(std::move(part));
        sender.Offer(std::move(more));
        EXPECT_EQ(sender.memory_bytes(), there - sent) << "what came lies here once, and what was sent no more";
        carry();
        EXPECT_EQ(sent, there) << "all that is there, chunks of " << chunk_bytes;
        EXPECT_EQ(sender.memory_bytes(), 0);
      }
      from = to;
    }
    EXPECT_FALSE(receiver.is_complete());
    sender.Offer(PrefixLayers{.end = 300, .is_last = true});
    carry();
    ASSERT_TRUE(receiver.is_complete()) << chunk_bytes;
    const FetchedPrefix fetched = receiver.Take();
    EXPECT_EQ(fetched.image.pages, image.pages);
    EXPECT_EQ(fetched.image.state, image.state);
  }
}

// One way to change a chunk on its way; false where that chunk cannot be changed so.
bool Mutate(const int way, std::mt19937_64& random, const ChunkFrame& other, ChunkFrame& chunk) {
  const auto bit = [&](auto& number) {
    number = static_cast<std::remove_reference_t<decltype(number)>>(static_cast<uint64_t>(number) ^
                                                                    (uint64_t{1} << (random() % (8 * sizeof(number)))));
  };
  switch (way) {
    case 0:
      bit(chunk.bytes[random() % chunk.bytes.size()]);
      return true;
    case 1:
      bit(chunk.crc32c);
      return true;
    case 2:
      bit(chunk.epoch);
      return true;
    case 3:
      bit(chunk.header.index);
      return true;
    case 4: {
      auto kind = static_cast<int32_t>(chunk.header.kind);
      bit(kind);
      chunk.header.kind = static_cast<ChunkKind>(kind);
      return true;
    }
    case 5:
      bit(chunk.header.layer);
      return true;
    case 6:
      bit(chunk.header.token_begin);
      return true;
    case 7:
      bit(chunk.header.token_end);
      return true;
    case 8:
      bit(chunk.header.offset);
      return true;
    case 9:
      bit(chunk.header.bytes);
      return true;
    case 10: {
      auto codec = static_cast<int32_t>(chunk.header.codec);
      bit(codec);
      chunk.header.codec = static_cast<ChunkCodec>(codec);
      return true;
    }
    case 11:
      chunk.bytes.resize(random() % chunk.bytes.size());
      return true;
    case 12:
      chunk.bytes.append(1 + random() % 64, static_cast<char>(random()));
      return true;
    case 13:  // The payload of one under the head of another.
      if (other.bytes == chunk.bytes) return false;
      chunk.bytes = other.bytes;
      return true;
    case 14:  // A whole chunk in the place of another.
      if (other.header == chunk.header) return false;
      chunk = other;
      return true;
    case 15:  // Several bytes.
      for (int i = 0; i < 8; ++i) chunk.bytes[random() % chunk.bytes.size()] ^= static_cast<char>(1 + random() % 255);
      return chunk.bytes != other.bytes;
    default:
      return false;
  }
}
constexpr int kWays = 16;

// 100,000 changed chunks; `INVAR_FUZZ_CHUNKS=1000000 engine_test --gtest_filter=TransferFuzz.*` for more.
TEST(TransferFuzz, NoChangedChunkIsAccepted) {
  const char* const asked = std::getenv("INVAR_FUZZ_CHUNKS");
  const int64_t wanted = asked == nullptr ? 100'000 : std::atoll(asked);
  const TransferIdentity identity = Identity(96, 40);
  const std::vector<TokenId> tokens(300);
  std::vector<ChunkFrame> sent;
  ManifestFrame manifest;
  PrefixSender sender(identity, {.tokens_max = 1000, .salt_bytes_max = 0, .chunk_bytes = 64});
  ASSERT_TRUE(sender.Open({.identity = identity, .scope = {}, .tokens = tokens}).ok());
  sender.Offer(ImageOf(identity, 0, 300));
  manifest = std::get<ManifestFrame>(sender.Next().value());
  ASSERT_TRUE(sender.On(GrantFrame{.epoch = 1, .credit_bytes = 1 << 20}).ok());
  CommitFrame commit;
  for (;;) {
    const ProducerFrame frame = sender.Next().value();
    if (const auto* const chunk = std::get_if<ChunkFrame>(&frame); chunk != nullptr) {
      sent.push_back(*chunk);
    } else {
      commit = std::get<CommitFrame>(frame);
      break;
    }
  }
  std::mt19937_64 random(1);
  int64_t accepted = 0;
  int64_t changed = 0;
  while (changed < wanted) {
    PrefixReceiver receiver({.identity = identity, .epoch = 1, .credit_bytes = 1 << 20, .bytes_max = 1 << 20},
                            {.tokens = tokens});
    receiver.On(manifest);
    const size_t at = random() % sent.size();
    for (size_t i = 0; i < at; ++i) receiver.On(sent[i]);
    ASSERT_FALSE(receiver.has_ended());
    ChunkFrame chunk = sent[at];
    const ChunkFrame& other = sent[random() % sent.size()];
    if (!Mutate(static_cast<int>(random() % kWays), random, other, chunk)) continue;
    if (chunk.bytes == sent[at].bytes && chunk.header == sent[at].header && chunk.epoch == 1 &&
        chunk.crc32c == sent[at].crc32c) {
      continue;  // Nothing was changed after all.
    }
    ++changed;
    receiver.On(chunk);
    accepted += receiver.has_ended() ? 0 : 1;
    for (size_t i = at + 1; i < sent.size(); ++i) receiver.On(sent[i]);
    receiver.On(commit);
    ASSERT_FALSE(receiver.is_complete());
    const FetchedPrefix fetched = receiver.Take();
    ASSERT_TRUE(fetched.fault.has_value());
    ASSERT_TRUE(fetched.image.pages.empty()) << "nothing of it is visible";
  }
  EXPECT_EQ(accepted, 0);
  // And what was not changed is.
  PrefixReceiver receiver({.identity = identity, .epoch = 1, .credit_bytes = 1 << 20, .bytes_max = 1 << 20},
                          {.tokens = tokens});
  receiver.On(manifest);
  for (const ChunkFrame& chunk : sent) receiver.On(chunk);
  receiver.On(commit);
  ASSERT_TRUE(receiver.is_complete());
  EXPECT_EQ(receiver.Take().image.state, ImageOf(identity, 0, 300).state);
}

}  // namespace
}  // namespace invar::engine
