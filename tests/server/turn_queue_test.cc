// Turns: in order, one at a time, one a node however often it asks, and none lost.
#include "server/threads/turn_queue.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <utility>
#include <vector>

namespace invar::server {
namespace {

class Counted final : public TurnQueue::Node {
 public:
  explicit Counted(std::function<void()> turn) : turn_(std::move(turn)) {}

 private:
  void TakeTurn() override { turn_(); }
  const std::function<void()> turn_;
};

// Keeps the queue's thread until told otherwise.
struct Holder {
  std::promise<void> standing, release;
  std::shared_ptr<Counted> node = std::make_shared<Counted>([this] {
    standing.set_value();
    release.get_future().wait();
  });
};

TEST(TurnQueue, GivesOneTurnHoweverOftenANodeAsksBeforeIt) {
  std::vector<int> order;
  {
    Holder holder;
    TurnQueue queue;
    queue.Ask(holder.node);
    holder.standing.get_future().wait();
    std::vector<std::shared_ptr<Counted>> nodes;
    for (int i = 0; i < 10'000; ++i) nodes.push_back(std::make_shared<Counted>([&order, i] { order.push_back(i); }));
    for (const auto& node : nodes) {
      for (int times = 0; times < 3; ++times) queue.Ask(node);
    }
    nodes.clear();  // The queue keeps what waits.
    holder.release.set_value();
  }
  ASSERT_EQ(order.size(), 10'000U);
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(order[i], i);
}

TEST(TurnQueue, AsksDuringATurnLeadToOneMore) {
  int turns = 0;
  {
    std::promise<void> standing, release;
    TurnQueue queue;
    const auto node = std::make_shared<Counted>([&] {
      if (turns++ > 0) return;
      standing.set_value();
      release.get_future().wait();
    });
    queue.Ask(node);
    standing.get_future().wait();
    queue.Ask(node);
    queue.Ask(node);
    release.set_value();
  }
  EXPECT_EQ(turns, 2);
}

}  // namespace
}  // namespace invar::server
