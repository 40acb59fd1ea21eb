// Units against a brute force on random trees; dead KV, live memory, dense leaves and probation.
#include "cache/evict/evictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "cache/evict/orders.h"
#include "tools/sim/random.h"

namespace invar::cache {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;
constexpr int64_t kPageBytes = 100;
constexpr int64_t kStateBytes = 1000;
using Tokens = std::vector<TokenId>;

// Bytes, recomputed tokens, expected requests, last use.
using UnitNumbers = std::tuple<int64_t, int32_t, double, TimeNs>;

// Notes the units it is asked about.
class Spy final : public EvictionOrder {
 public:
  double Value(const EvictionUnit& unit) const override {
    asked_.emplace_back(unit.bytes, unit.recompute, unit.demand.requests, unit.used_at);
    return static_cast<double>(unit.used_at);
  }
  const std::vector<UnitNumbers>& asked() const { return asked_; }

 private:
  mutable std::vector<UnitNumbers> asked_;
};

class Rig {
 public:
  explicit Rig(const int64_t budget, const bool has_state = true)
      : memory_({.page_bytes = kPageBytes, .state_bytes = has_state ? kStateBytes : 0}, budget, 4, Backing::kNone),
        evictor_(tree_, memory_, demand_, /*listener=*/nullptr, has_state) {}

  PageTable PagesOf(const Tokens& tokens) {
    PageTable pages;
    for (size_t at = 0; at < tokens.size(); at += 64) pages.Append(*memory_.TakePage(Fill::kNone));
    return pages;
  }
  Node& Add(const Tokens& tokens, const TimeNs now) {
    Node& node = tree_.Insert({}, tokens, PagesOf(tokens));
    for (Node* n = &node; !n->is_root(); n = n->parent) n->use.used_at = now;
    return node;
  }
  Node& Checkpoint(const Tokens& tokens, const int32_t at) {
    Node& node = tree_.NodeAt({}, tokens, at);
    if (!node.checkpoint.has_value()) {
      node.checkpoint = cache::Checkpoint{memory_.TakeSlot(Fill::kNone)->Share(Holder::kCached), CheckpointKind::kEnd};
    }
    return node;
  }
  // A pass that leaves `bytes` free.
  bool Free(const int64_t bytes, const EvictionOrder& order, const TimeNs now) {
    return evictor_.MakeRoom(bytes, order, now);
  }
  bool HasCheckpoint(const Tokens& tokens, const int32_t at) {
    const Match match = tree_.Find({}, tokens);
    return std::any_of(match.nodes.begin(), match.nodes.end(),
                       [&](const Node* node) { return node->end == at && node->checkpoint.has_value(); });
  }

  CacheMemory memory_;
  RadixTree tree_;
  DemandModel demand_;
  Evictor evictor_;
};

Tokens Ids(const int32_t first, const int32_t count) {
  Tokens tokens;
  for (int32_t i = 0; i < count; ++i) tokens.emplace_back(first + i);
  return tokens;
}

// A path of a tree in which prefixes meet often: runs of 40 tokens, each one of three.
Tokens RandomPath(sim::Random& random) {
  Tokens tokens;
  const int runs = random.Between(1, 8);
  for (int run = 0; run < runs; ++run) {
    const int32_t which = random.Between(0, 2);
    for (int32_t i = 0; i < 40; ++i) tokens.emplace_back(1000 * run + 100 * which + i);
  }
  tokens.resize(random.Between(1, static_cast<int32_t>(tokens.size())));
  return tokens;
}

double UncoveredRequests(const Rig& rig, const Node& node, const TimeNs now) {
  double requests = rig.demand_.Expected(node.use, now).requests;
  for (const auto& child : node.children) {
    if (!child->checkpoint.has_value()) requests += UncoveredRequests(rig, *child, now);
  }
  return requests;
}
bool HasCheckpointBelow(const Node& node) {
  return std::any_of(node.children.begin(), node.children.end(), [](const std::unique_ptr<Node>& child) {
    return child->checkpoint.has_value() || HasCheckpointBelow(*child);
  });
}
TimeNs LastUse(const Node& node) {
  TimeNs last = node.use.used_at;
  for (const auto& child : node.children) last = std::max(last, LastUse(*child));
  return last;
}

std::vector<UnitNumbers> UnitsByBruteForce(const Rig& rig, const TimeNs now) {
  std::vector<UnitNumbers> units;
  rig.tree_.ForEach([&](const Scope&, const Node& node) {
    if (!node.checkpoint.has_value()) return;
    int64_t bytes = kStateBytes;
    if (!HasCheckpointBelow(node)) {
      const Node* n = &node;
      do {
        bytes += kPageBytes * static_cast<int64_t>(n->pages.size());
        n = n->parent;
      } while (!n->is_root() && !n->checkpoint.has_value() && n->children.size() == 1);
    }
    const Node* above = node.parent;
    while (!above->is_root() && !above->checkpoint.has_value()) above = above->parent;
    units.emplace_back(bytes, node.end - above->end, UncoveredRequests(rig, node, now), LastUse(node));
  });
  return units;
}

// Paths with checkpoints, demand and no dead KV: what a pass finds.
void Fill(Rig& rig, sim::Random& random, const int paths) {
  for (int i = 0; i < paths; ++i) {
    const Tokens tokens = RandomPath(random);
    const TimeNs now = i * kSecond;
    rig.Add(tokens, now);
    const int32_t n = static_cast<int32_t>(tokens.size());
    rig.Checkpoint(tokens, n);
    if (random.Between(0, 1) == 0) rig.Checkpoint(tokens, random.Between(1, n));
    DemandModel::Begin(rig.tree_.NodeAt({}, tokens, n).use, UseOrigin::kEnd, now);
    const int32_t hit = random.Between(1, n);
    rig.demand_.Hit(rig.tree_.NodeAt({}, tokens, hit).use, now);
  }
}

TEST(Evictor, UnitsAreWhatABruteForceFindsOnRandomTrees) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    sim::Random random(seed);
    Rig rig(1 << 24);
    Fill(rig, random, random.Between(2, 13));
    const TimeNs now = 100 * kSecond;
    std::vector<UnitNumbers> expected = UnitsByBruteForce(rig, now);
    Spy spy;
    ASSERT_TRUE(rig.Free(rig.memory_.budget_bytes() - rig.memory_.used_bytes() + 1, spy, now));
    ASSERT_GE(spy.asked().size(), expected.size());
    std::vector<UnitNumbers> found(spy.asked().begin(), spy.asked().begin() + std::ssize(expected));
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(std::get<0>(found[i]), std::get<0>(expected[i])) << "seed " << seed;
      ASSERT_EQ(std::get<1>(found[i]), std::get<1>(expected[i])) << "seed " << seed;
      // Sums of up to 20 numbers below 2 in another order.
      ASSERT_NEAR(std::get<2>(found[i]), std::get<2>(expected[i]), 1e-12) << "seed " << seed;
      ASSERT_EQ(std::get<3>(found[i]), std::get<3>(expected[i])) << "seed " << seed;
    }
  }
}

TEST(Evictor, LeavesNoDeadKvAfterAnyPass) {
  for (const std::string_view name : EvictionOrderNames()) {
    const std::unique_ptr<EvictionOrder> order = MakeEvictionOrder(name);
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      sim::Random random(seed);
      Rig rig(1 << 20);
      Fill(rig, random, 12);
      rig.Add(RandomPath(random), kSecond);  // Without a checkpoint: mostly dead.
      while (rig.memory_.used_bytes() > 0) {
        const int64_t free = rig.memory_.budget_bytes() - rig.memory_.used_bytes();
        const int64_t step = random.Between(1, 3000);
        ASSERT_TRUE(rig.Free(std::min(free + step, rig.memory_.budget_bytes()), *order, 100 * kSecond));
        ASSERT_EQ(rig.evictor_.DeadKvBytes(), 0) << name << " seed " << seed;
        rig.tree_.CheckIntegrity();
        rig.memory_.CheckIntegrity();
        rig.evictor_.CheckIntegrity();
      }
    }
  }
}

TEST(Evictor, NeverTakesWhatASequenceHolds) {
  const std::unique_ptr<EvictionOrder> order = MakeEvictionOrder("node-demand");
  for (const bool has_state : {true, false}) {
    Rig rig(100'000, has_state);
    const Tokens live = Ids(0, 640);
    const PageTable held = rig.PagesOf(live);
    rig.tree_.Insert({}, live, held);
    rig.Add(Ids(5000, 320), kSecond);
    EXPECT_FALSE(rig.Free(100'000, *order, kSecond));
    EXPECT_EQ(rig.tree_.Find({}, live).kv_tokens, 640);
    EXPECT_EQ(rig.memory_.used_bytes(), 10 * kPageBytes);
  }
}

TEST(Evictor, ACheckpointSomeSequenceResumesFromStays) {
  const std::unique_ptr<EvictionOrder> order = MakeEvictionOrder("least-recently-used");
  Rig rig(100'000);
  const Tokens tokens = Ids(0, 64);
  rig.Add(tokens, kSecond);
  const SlotRef resumed = rig.Checkpoint(tokens, 64).checkpoint->state.Share(Holder::kLive);
  EXPECT_FALSE(rig.Free(100'000, *order, 2 * kSecond));
  EXPECT_TRUE(rig.HasCheckpoint(tokens, 64));
}

TEST(Evictor, CutsOnlyAsManyPagesOffADenseLeafAsAreAskedFor) {
  const std::unique_ptr<EvictionOrder> order = MakeEvictionOrder("node-demand");
  Rig rig(100 * kPageBytes, /*has_state=*/false);
  const Tokens tokens = Ids(0, 100 * 64);
  rig.Add(tokens, kSecond);
  ASSERT_TRUE(rig.Free(3 * kPageBytes, *order, kSecond));
  // And one page more, the slack of a pass.
  EXPECT_EQ(rig.tree_.Find({}, tokens).kv_tokens, 96 * 64);
}

TEST(Evictor, ProbationEvictsTheLongestWaitingFirstAndSparesWhatWasUsed) {
  Rig rig(1 << 20);
  const int64_t room_for_two = 2 * kStateBytes;
  std::vector<Tokens> paths;
  for (int32_t i = 0; i < 4; ++i) paths.push_back(Ids(1000 * i, 128));
  for (int32_t i = 0; i < 2; ++i) {
    rig.Add(paths[i], i * kSecond);
    rig.evictor_.PutOnProbation(rig.Checkpoint(paths[i], 100), room_for_two, i * kSecond);
  }
  rig.evictor_.Promote(*rig.tree_.Find({}, paths[0]).nodes.front());
  for (int32_t i = 2; i < 4; ++i) {
    rig.Add(paths[i], i * kSecond);
    rig.evictor_.PutOnProbation(rig.Checkpoint(paths[i], 100), room_for_two, i * kSecond);
  }
  EXPECT_TRUE(rig.HasCheckpoint(paths[0], 100));  // Used: no longer on probation.
  EXPECT_FALSE(rig.HasCheckpoint(paths[1], 100));
  EXPECT_TRUE(rig.HasCheckpoint(paths[2], 100));
  EXPECT_TRUE(rig.HasCheckpoint(paths[3], 100));
  EXPECT_EQ(rig.evictor_.probation_count(), 2);
  rig.evictor_.CheckIntegrity();
}

TEST(Evictor, APassForgetsWhatItEvictsFromProbation) {
  const std::unique_ptr<EvictionOrder> order = MakeEvictionOrder("node-demand");
  Rig rig(100'000);
  const Tokens tokens = Ids(0, 128);
  rig.Add(tokens, kSecond);
  rig.evictor_.PutOnProbation(rig.Checkpoint(tokens, 128), 10 * kStateBytes, kSecond);
  ASSERT_TRUE(rig.Free(100'000, *order, kSecond));
  EXPECT_EQ(rig.evictor_.probation_count(), 0);
}

TEST(Evictor, ARecountFindsWhatLeftTheTreeBehindItsBack) {
  Rig rig(1 << 20);
  const Tokens tokens = Ids(0, 128);
  rig.Add(tokens, kSecond);
  Node& node = rig.Checkpoint(tokens, 128);
  rig.evictor_.PutOnProbation(node, 10 * kStateBytes, kSecond);
  rig.evictor_.CheckIntegrity();
  node.checkpoint.reset();
  EXPECT_DEATH(rig.evictor_.CheckIntegrity(), "what is on probation is in the tree");
}

TEST(Evictor, KeepsWhatIsComeBackToOverWhatIsOnlyNewer) {
  const std::unique_ptr<EvictionOrder> order = MakeEvictionOrder("node-demand");
  Rig rig(100'000);
  const Tokens shared = Ids(0, 640);
  const Tokens once = Ids(5000, 640);
  rig.Add(shared, kSecond);
  rig.Checkpoint(shared, 640);
  for (int i = 1; i <= 50; ++i) rig.demand_.Hit(rig.tree_.NodeAt({}, shared, 640).use, i * kSecond);
  rig.Add(once, 51 * kSecond);
  rig.Checkpoint(once, 640);
  DemandModel::Begin(rig.tree_.NodeAt({}, once, 640).use, UseOrigin::kEnd, 51 * kSecond);
  rig.demand_.StartCensus();
  rig.demand_.EndCensus();
  ASSERT_TRUE(rig.Free(100'000 - rig.memory_.used_bytes() + 1, *order, 51 * kSecond));
  EXPECT_TRUE(rig.HasCheckpoint(shared, 640));
  EXPECT_FALSE(rig.HasCheckpoint(once, 640));
}

}  // namespace
}  // namespace invar::cache
