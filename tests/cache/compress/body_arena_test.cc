// BodyArena: blocks stay together and apart, what is free is used again, and layers have the bytes they have on the
// heap.
#include "cache/body_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "cache/compressor.h"

namespace invar::cache {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(BodyArena, PutsBlocksSideBySide) {
  BodyArena arena;
  auto* const first = static_cast<std::byte*>(arena.allocate(kMiB));
  auto* const second = static_cast<std::byte*>(arena.allocate(kMiB + 1));
  EXPECT_EQ(second, first + kMiB);
  EXPECT_EQ(arena.used_bytes(), 2 * kMiB + 4096) << "whole memory pages";
  EXPECT_EQ(arena.reached_bytes(), arena.used_bytes());
  arena.deallocate(first, kMiB);
  arena.deallocate(second, kMiB + 1);
  EXPECT_EQ(arena.used_bytes(), 0);
}

TEST(BodyArena, TakesSmallBlocksFromTheHeap) {
  BodyArena arena;
  void* const block = arena.allocate(BodyArena::kLeastBlock - 1);
  EXPECT_EQ(arena.reached_bytes(), 0);
  arena.deallocate(block, BodyArena::kLeastBlock - 1);
}

TEST(BodyArena, HasRoomForABlockLargerThanARegion) {
  BodyArena arena;
  auto* const block = static_cast<std::byte*>(arena.allocate(100 * kMiB));
  block[0] = block[100 * kMiB - 1] = std::byte{1};
  arena.deallocate(block, 100 * kMiB);
  EXPECT_EQ(arena.reached_bytes(), 0);
}

// As layers of one sequence do at upkeep: each block grows in turn, the new one first.
TEST(BodyArena, LayersThatGrowInTurnReachLittleMoreThanTheyTake) {
  BodyArena arena;
  constexpr int kLayers = 30;
  int64_t bytes = kMiB;
  std::vector<void*> layers;
  for (int i = 0; i < kLayers; ++i) layers.push_back(arena.allocate(bytes));
  for (int round = 0; round < 8; ++round) {
    const int64_t larger = bytes + bytes / 8;
    for (void*& layer : layers) {
      void* const grown = arena.allocate(larger);
      arena.deallocate(layer, bytes);
      layer = grown;
    }
    bytes = larger;
    arena.CheckIntegrity();
    EXPECT_LE(arena.reached_bytes(), arena.used_bytes() * 5 / 4) << round;
  }
  for (void* const layer : layers) arena.deallocate(layer, bytes);
}

TEST(BodyArena, KeepsEveryBlockApartThroughRandomSchedules) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    BodyArena arena;
    struct Block {
      std::byte* at;
      int64_t bytes;
      std::byte mark;
    };
    std::vector<Block> blocks;
    int64_t used = 0;
    const auto give_back = [&](const size_t index) {
      const Block block = blocks[index];
      EXPECT_EQ(block.at[0], block.mark);
      EXPECT_EQ(block.at[block.bytes - 1], block.mark);
      arena.deallocate(block.at, block.bytes);
      blocks.erase(blocks.begin() + static_cast<int64_t>(index));
      used -= (block.bytes + 4095) / 4096 * 4096;
    };
    for (int step = 0; step < 200; ++step) {
      if (!blocks.empty() && random() % 2 == 0) {
        give_back(random() % blocks.size());
      } else {
        const int64_t bytes = BodyArena::kLeastBlock + random() % (8 * kMiB);
        Block block{static_cast<std::byte*>(arena.allocate(bytes)), bytes, static_cast<std::byte>(random() % 256)};
        block.at[0] = block.at[bytes - 1] = block.mark;
        blocks.push_back(block);
        used += (bytes + 4095) / 4096 * 4096;
      }
      arena.CheckIntegrity();
      ASSERT_EQ(arena.used_bytes(), used) << seed << " " << step;
    }
    while (!blocks.empty()) give_back(0);
    EXPECT_EQ(arena.reached_bytes(), 0) << "regions go back to the system";
  }
}

TEST(BodyArena, HoldsTheBytesThatTheHeapWould) {
  const kernels::PageShape shape{.kv_heads = 2, .head_dim = 64};
  std::mt19937 random(1);
  std::normal_distribution<float> noise;
  std::vector<float> rows(static_cast<size_t>(1400 * 2 * 64));
  for (float& x : rows) x = noise(random);
  const kernels::ConstKvRows all{rows.data(), rows.data(), 1400, 64, 2 * 64};
  const auto compressor = MakeCompressor("centroid").value();
  BodyArena arena;
  CompressContext context{.budget = Budget::Share(0.25)};
  const auto make = [&] {
    CompressedLayer view = compressor->Prefill(shape, all.Slots(0, 1200), context);
    view.Append(all.Slots(1200, 200));
    compressor->Maintain(view, 1400, context);
    return view;
  };
  const CompressedLayer on_heap = make();
  context.bodies = &arena;
  {
    const CompressedLayer in_arena = make();
    EXPECT_GT(arena.used_bytes(), 0);
    EXPECT_EQ(in_arena.Export(), on_heap.Export());
    const int64_t used = arena.used_bytes();
    const CompressedLayer copy = in_arena;
    EXPECT_EQ(arena.used_bytes(), used) << "a copy lies on the heap";
    EXPECT_EQ(copy, in_arena);
  }
  EXPECT_EQ(arena.reached_bytes(), 0);
}

}  // namespace
}  // namespace invar::cache
