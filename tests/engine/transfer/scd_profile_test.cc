// The file: what goes in comes out, and nothing that is damaged, cut off or of another pair is taken.
#include <gtest/gtest.h>

#include <limits>

#include "base/fingerprint.h"
#include "base/split_mix64.h"
#include "engine/transfer/scd_profile_file.h"
#include "engine/transfer/scd_trim.h"
#include "tests/support/tiny_model.h"

namespace invar::engine {
namespace {

FloatRows Drawn(const int64_t rows, const int64_t cols, SplitMix64& random) {
  FloatRows out(rows, cols);
  for (float& value : out.values) value = static_cast<float>(random.Next() >> 40) * 0x1p-24F;
  return out;
}

ScdCodec Codec(const int64_t inputs, const int64_t ranks, const int64_t outputs, const bool nonlinear,
               SplitMix64& random) {
  ScdCodec codec;
  codec.encoder = {.mean = Drawn(1, inputs, random).values,
                   .matrix = Drawn(inputs, ranks, random),
                   .sigma = std::vector<float>(static_cast<size_t>(ranks), 0.5F)};
  codec.decoders.push_back({.rank = static_cast<int32_t>(ranks),
                            .mean = Drawn(1, outputs, random).values,
                            .matrix = Drawn(ranks, outputs, random)});
  if (nonlinear) {
    codec.decoders.push_back(
        {.rank = 2, .features = 3, .mean = Drawn(1, outputs, random).values, .matrix = Drawn(5, outputs, random)});
  }
  return codec;
}

// One attention layer, one recurrent.
ScdProfile Small() {
  SplitMix64 random(1);
  ScdProfile profile;
  profile.producer = {.fingerprint = "aa",
                      .numerics_id = "n",
                      .tokenizer = "tt",
                      .inverse_frequencies = {1.0, 0.01},
                      .rope_factor = 1.5};
  profile.consumer = profile.producer;
  profile.consumer.fingerprint = "bb";
  profile.calibration = "cc";
  profile.shape.hidden = 6;
  profile.shape.layers = {
      {.recurrent = false, .kv_heads = 1, .head_dim = 4},
      {.recurrent = true, .heads_k = 1, .heads_v = 2, .dim_k = 3, .dim_v = 2, .conv_rows = 3, .conv_dim = 10}};
  profile.layers.resize(2);
  profile.layers[0] = {.keys = Codec(4, 4, 4, false, random),
                       .values = Codec(4, 4, 4, false, random),
                       .joint = Codec(6, 6, 8, true, random),
                       .inputs = Codec(6, 6, 6, false, random),
                       .states = {}};
  profile.layers[1].inputs = Codec(6, 6, 6, false, random);
  profile.layers[1].states = {.heads_k = 1,
                              .heads_v = 2,
                              .dim_k = 3,
                              .dim_v = 2,
                              .keys = Drawn(3, 3, random),
                              .values = Drawn(4, 2, random),
                              .gain = {1.0F, 0.9F}};
  const ScdLayerPlan state{.mode = ScdMode::kMapState, .rank = 6, .tail = 4};
  profile.points = {{.name = "narrow",
                     .layers = {{.mode = ScdMode::kReuse, .bits = CodeBits::kInt4, .rank = 2, .features = 3}, state}},
                    {.name = "apart",
                     .layers = {{.mode = ScdMode::kReuseKv, .bits = CodeBits::kBf16, .rank = 2, .rank_v = 3}, state}}};
  profile.qualities = {{.kl = 0.25, .top1_agreement = 0.5, .attention_cosine = 0.75}, {}};
  return profile;
}

// Stored again with a right checksum: for damage that only a reader who looks can see.
std::string Sealed(std::string bytes) {
  bytes.resize(bytes.size() - sizeof(Digest));
  const Digest digest = Sha256(bytes);
  bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return bytes;
}

TEST(ScdFile, GivesBackWhatWasStored) {
  const ScdProfile profile = Small();
  const std::string bytes = ToScdBytes(profile);
  const StatusOr<ScdProfile> back = ParseScd(bytes, "x.scd");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(ToScdBytes(*back), bytes);
  EXPECT_EQ(back->producer, profile.producer);
  EXPECT_EQ(back->shape, profile.shape);
  EXPECT_EQ(back->points[0].layers, profile.points[0].layers);
  EXPECT_EQ(back->layers[0].joint.decoders[1].matrix.values, profile.layers[0].joint.decoders[1].matrix.values);
  EXPECT_EQ(back->layers[1].states.gain, profile.layers[1].states.gain);
}

TEST(ScdFile, RefusesEveryFlippedBitAndEveryCut) {
  const std::string bytes = ToScdBytes(Small());
  for (size_t at = 0; at < bytes.size(); at += at < 64 ? 1 : 37) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    const StatusOr<ScdProfile> read = ParseScd(damaged, "x.scd");
    ASSERT_FALSE(read.ok()) << at;
    EXPECT_TRUE(read.status().message().starts_with("x.scd: ")) << read.status().message();
  }
  for (size_t length = 0; length < bytes.size(); length += 29)
    ASSERT_FALSE(ParseScd(std::string_view(bytes).substr(0, length), "x.scd").ok()) << length;
  EXPECT_FALSE(ParseScd(bytes + "x", "x.scd").ok());
}

// Numbers that lie, with a checksum that does not.
TEST(ScdFile, TrustsNoNumberOfTheHeader) {
  const std::string bytes = ToScdBytes(Small());
  struct Lie {
    const char* what;
    std::string from;
    std::string to;  // Of the same length.
    const char* named;
  };
  const Lie lies[] = {
      {"more inputs than tensors hold", "\"hidden\":6", "\"hidden\":7", "tensors"},
      {"a decoder of more than its encoder", "\"ranks\":4", "\"ranks\":3", "decoders.rank"},
      {"more ranks than inputs", "\"ranks\":6", "\"ranks\":9", "joint.ranks"},
      {"a decoder beyond its encoder", "\"rank\":6,\"features\":0", "\"rank\":9,\"features\":0", "decoders.rank"},
      {"another shape", "\"kv_heads\":1", "\"kv_heads\":0", "shape"},
      {"heads that do not divide", "\"heads_k\":1,\"heads_v\":2", "\"heads_k\":2,\"heads_v\":3", "shape"},
      {"a mode nobody knows", "\"mode\":\"reuse\"", "\"mode\":\"reuso\"", "mode"},
      {"a header that is no JSON", "map_state", "map_stat\"", "header"},
      {"no layers", "\"layers\":[{\"shape\"", "\"loyers\":[{\"shape\"", "layers"},
      {"a text for a number", "\"hidden\":6", "\"hidden\":x", "header"},
      {"a rank that is not fitted", "\"rank\":2,\"rank_v\":3", "\"rank\":2,\"rank_v\":9", "points[1]"},
      {"a tail below nothing", "\"tail\":4", "\"tail\":-", "header"},
  };
  for (const Lie& lie : lies) {
    std::string told = bytes;
    const size_t at = told.find(lie.from);
    ASSERT_NE(at, std::string::npos) << lie.what;
    ASSERT_EQ(lie.from.size(), lie.to.size()) << lie.what;
    told.replace(at, lie.to.size(), lie.to);
    const StatusOr<ScdProfile> read = ParseScd(Sealed(told), "x.scd");
    ASSERT_FALSE(read.ok()) << lie.what;
    EXPECT_NE(read.status().message().find(lie.named), std::string::npos)
        << lie.what << ": " << read.status().message();
  }
}

TEST(ScdFile, RefusesNumbersThatAreNone) {
  ScdProfile profile = Small();
  profile.layers[0].keys.encoder.matrix.values[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(ParseScd(ToScdBytes(profile), "x").status().message().find("layers[0].keys.encoder.matrix"),
            std::string::npos);
  profile = Small();
  profile.layers[1].inputs.encoder.sigma[0] = 0.0F;
  EXPECT_NE(ParseScd(ToScdBytes(profile), "x").status().message().find("layers[1].inputs.encoder.sigma"),
            std::string::npos);
}

TEST(ScdFile, SaysWhichVersionItWants) {
  std::string bytes = ToScdBytes(Small());
  bytes[8] = 9;
  const Status status = ParseScd(Sealed(bytes), "x.scd").status();
  EXPECT_EQ(status.message(), "x.scd: version: wanted 1, found 9; calibrate again");
}

TEST(ScdFile, LiesOnDiskAsAWhole) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/a.scd";
  EXPECT_EQ(LoadScd(path).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(SaveScd(Small(), path).ok());
  EXPECT_TRUE(LoadScd(path).ok());
}

TEST(ScdSides, AnotherModelIsNamed) {
  const ScdProfile profile = Small();
  EXPECT_TRUE(CheckScdSides(profile, profile.producer, profile.consumer).ok());
  const auto refused = [&](const char* named, const auto& change) {
    ScdSide other = profile.consumer;
    change(other);
    const Status status = CheckScdSides(profile, profile.producer, other);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << named;
    EXPECT_NE(status.message().find(named), std::string::npos) << status.message();
  };
  refused("consumer.fingerprint: wanted bb, found aa", [](ScdSide& side) { side.fingerprint = "aa"; });
  refused("consumer.numerics", [](ScdSide& side) { side.numerics_id = "other"; });
  refused("consumer.tokenizer", [](ScdSide& side) { side.tokenizer = "other"; });
  refused("consumer.rope", [](ScdSide& side) { side.inverse_frequencies[0] = 2.0; });
  refused("consumer.rope", [](ScdSide& side) { side.rope_factor = 1.0; });
  EXPECT_FALSE(CheckScdSides(profile, profile.consumer, profile.producer).ok()) << "the wrong way round";
}

TEST(ScdTrim, KeepsWhatPointsUse) {
  ScdProfile profile = Small();
  profile.points.pop_back();
  profile.qualities.pop_back();
  TrimScdProfile(profile);
  EXPECT_EQ(profile.layers[0].keys.encoder.ranks(), 0);
  EXPECT_EQ(profile.layers[0].joint.encoder.ranks(), 2);
  EXPECT_EQ(profile.layers[0].joint.decoders.size(), 1U);
  EXPECT_TRUE(CheckScdPoint(profile, profile.points[0]).ok());
  EXPECT_TRUE(ParseScd(ToScdBytes(profile), "x").ok());
}

}  // namespace
}  // namespace invar::engine
