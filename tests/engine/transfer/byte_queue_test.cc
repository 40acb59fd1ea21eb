// A queue gives out what came, whatever it is cut into, and holds no more than what has not been taken.
#include "engine/byte_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace invar::engine {
namespace {

TEST(ByteQueue, GivesOutWhatCameHoweverItIsCut) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    ByteQueue queue;
    std::string came;
    std::string given;
    for (int turn = 0; turn < 40; ++turn) {
      std::vector<std::byte> buffer(random() % 9);
      for (std::byte& byte : buffer) {
        byte = static_cast<std::byte>(random());
        came.push_back(static_cast<char>(byte));
      }
      queue.Put(std::move(buffer));
      ASSERT_EQ(queue.put(), std::ssize(came));
      queue.Take(static_cast<int64_t>(random() % static_cast<size_t>(queue.size() + 1)), given);
      ASSERT_EQ(queue.taken(), std::ssize(given));
      ASSERT_EQ(queue.size(), std::ssize(came) - std::ssize(given));
      ASSERT_LT(queue.memory_bytes(), queue.size() + 9) << "but for what was taken of the first buffer";
    }
    queue.Take(queue.size(), given);
    EXPECT_EQ(given, came);
    EXPECT_EQ(queue.memory_bytes(), 0);
  }
}

}  // namespace
}  // namespace invar::engine
