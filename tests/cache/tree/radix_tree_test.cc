// The tree against a list of prefixes: what is found, how nodes part, and that pages follow their positions.
#include "cache/tree/radix_tree.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "cache/prefix/resume.h"
#include "cache/tree_walk.h"
#include "tests/cache/token_lists.h"
#include "tools/sim/random.h"

namespace invar::cache {
namespace {

std::span<const TokenId> First(const Tokens& tokens, const int32_t n) { return std::span(tokens).first(n); }

class RadixTreeTest : public testing::Test {
 protected:
  // As a sequence does: the pages of what is found are shared, the last partial one is its own, the rest new.
  PageTable PagesOf(const Tokens& tokens) {
    PageTable table;
    const Match match = tree_.Find({}, tokens);
    const int32_t pages = (static_cast<int32_t>(tokens.size()) + 63) / 64;
    for (int32_t p = 0; p < pages; ++p) {
      const Node* deepest = nullptr;
      for (const Node* const node : match.nodes) {
        if ((p + 1) * 64 <= match.kv_tokens && node->first_page() <= p && node->begin < match.kv_tokens) deepest = node;
      }
      table.Append(deepest != nullptr ? deepest->pages[p - deepest->first_page()].Share(Holder::kLive)
                                      : pool_.Take(Fill::kZero).value());
    }
    return table;
  }
  Node& Insert(const Tokens& tokens) {
    const PageTable pages = PagesOf(tokens);
    Node& node = tree_.Insert({}, tokens, pages);
    tree_.CheckIntegrity();
    return node;
  }

  // Judges the names that nodes have, and names some more of their pages.
  void NamePages(sim::Random& random) {
    tree_.ForEach([&](const Scope&, Node& node) {
      Tokens tokens = node.tokens;
      for (const Node* n = node.parent; !n->is_root(); n = n->parent) tokens = Join(n->tokens, tokens);
      const auto named = static_cast<int32_t>(node.names.size());
      ASSERT_LE(named, node.whole_pages());
      for (int32_t i = 0; i < named + random.Between(0, node.whole_pages() - named); ++i) {
        PageName name;
        const auto to_its_end = std::as_bytes(First(tokens, 64 * (node.first_page() + i + 1)));
        name.chain = FingerprintBuilder().Add(to_its_end).Finish();
        if (i < named) {
          ASSERT_EQ(node.names[i].chain, name.chain) << "page " << i << " of the node at " << node.begin;
        } else {
          node.names.push_back(name);
        }
      }
    });
  }

  PagePool pool_{4096, 64, Backing::kMemory};
  SlotPool slots_{64, 16, Backing::kMemory};
  RadixTree tree_;
};

TEST_F(RadixTreeTest, FindsTheLongestPrefixByToken) {
  const Tokens a = Ids(0, 300);
  Insert(a);
  EXPECT_EQ(tree_.Find({}, a).kv_tokens, 300);
  EXPECT_EQ(tree_.Find({}, First(a, 77)).kv_tokens, 77);
  const Tokens other = Join(Ids(0, 100), Ids(1000, 100));
  EXPECT_EQ(tree_.Find({}, other).kv_tokens, 100);
  EXPECT_EQ(tree_.Find({}, Ids(1000, 10)).kv_tokens, 0);
}

// Between the parts of a walk nodes come, split and are cut: each that stays as it is is seen once, below its parent.
TEST_F(RadixTreeTest, AWalkInPartsSeesEveryNodeThatStays) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    sim::Random random(seed);
    const auto chat = [&] {
      Tokens tokens;
      for (int32_t left = random.Between(1, 40); left > 0; --left) tokens.emplace_back(random.Between(0, 1));
      return tokens;
    };
    tree_.Clear([](const Scope&) { return true; });
    for (int i = 0; i < 25; ++i) Insert(chat());
    // By its number of hits each can be told from the others.
    struct Seen {
      int32_t hits, begin, end, parent_hits;
      auto operator<=>(const Seen&) const = default;
    };
    const auto nodes_now = [&] {
      std::set<Seen> nodes;
      tree_.ForEach([&](const Scope&, const Node& node) {
        nodes.insert({node.use.hits, node.begin, node.end, node.parent->is_root() ? 0 : node.parent->use.hits});
      });
      return nodes;
    };
    int32_t number = 0;
    tree_.ForEach([&](const Scope&, Node& node) { node.use.hits = ++number; });
    std::set<Seen> stay = nodes_now();
    TreeWalk walk({.nodes_max = 1000});
    const int32_t part = random.Between(1, 4);
    for (int parts = 0; !walk.is_done(); ++parts) {
      walk.Continue(tree_, part);
      if (parts > 200) continue;
      if (random.Between(0, 1) == 0) {
        Insert(chat()).use.hits = 1000 + ++number;
      } else {
        std::vector<Node*> leaves;
        tree_.ForEach([&](const Scope&, Node& node) {
          if (node.is_leaf()) leaves.push_back(&node);
        });
        if (leaves.empty()) continue;
        Node& leaf = *leaves[static_cast<size_t>(random.Between(0, static_cast<int32_t>(leaves.size()) - 1))];
        tree_.Shorten(leaf, random.Between(leaf.begin, leaf.end - 1));
      }
      std::set<Seen> still;
      std::ranges::set_intersection(stay, nodes_now(), std::inserter(still, still.end()));
      stay = std::move(still);
    }
    const TreeReport report = walk.Report(0);
    std::multiset<Seen> seen;
    for (const TreeNodeReport& node : report.nodes) {
      seen.insert({node.hits, node.begin, node.end, node.parent < 0 ? 0 : report.nodes[node.parent].hits});
    }
    for (const Seen& node : stay) {
      EXPECT_EQ(seen.count(node), 1u) << node.hits << ": [" << node.begin << ", " << node.end << ") below "
                                      << node.parent_hits;
    }
  }
}

// Requests that grow by a token leave a node each, and a caller decides how many there are.
TEST_F(RadixTreeTest, APathOfManyNodesNeedsNoDeepStack) {
  const std::function<void()> work = [this] {
    constexpr int32_t kNodes = 3000;
    const Tokens tokens = Ids(0, kNodes);
    RadixTree other;  // Ends in this thread.
    for (RadixTree* const tree : {&tree_, &other}) {
      tree->Insert({}, tokens, PagesOf(tokens));
      for (int32_t at = kNodes - 1; at > 0; --at) tree->NodeAt({}, tokens, at);
      EXPECT_EQ(tree->node_count(), kNodes);
      tree->CheckIntegrity();
    }
    tree_.Clear([](const Scope&) { return true; });
    EXPECT_EQ(tree_.node_count(), 0);
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 128 * 1024), 0);
  pthread_t thread{};
  const auto run = [](void* const argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST_F(RadixTreeTest, ScopesShareNothing) {
  const Tokens a = Ids(0, 100);
  Insert(a);
  for (const Scope& scope :
       {Scope{.tenant = "t", .salt = {}, .provenance = {}}, Scope{.tenant = {}, .salt = "s", .provenance = {}},
        Scope{.tenant = {}, .salt = {}, .provenance = "centroid"}}) {
    EXPECT_EQ(tree_.Find(scope, a).kv_tokens, 0);
  }
}

TEST_F(RadixTreeTest, PathsPartAtAnyTokenAndKeepTheirPages) {
  for (const int32_t shared : {1, 63, 64, 65, 127, 128, 200}) {
    const Tokens a = Join({TokenId(-shared)}, Ids(0, 299));
    const Tokens b = Join(Join({TokenId(-shared)}, Ids(0, shared - 1)), Ids(5000, 150));
    Insert(a);
    Insert(b);
    EXPECT_EQ(tree_.Find({}, a).kv_tokens, 300);
    EXPECT_EQ(tree_.Find({}, b).kv_tokens, shared + 150);
    EXPECT_EQ(tree_.Find({}, a).nodes.size(), 2U);
    EXPECT_EQ(tree_.Find({}, a).nodes[0]->end, shared);
  }
}

TEST_F(RadixTreeTest, ASequenceThatGoesOnExtendsItsLeaf) {
  PageTable pages;
  const Tokens all = Ids(0, 500);
  for (const int32_t end : {10, 64, 100, 500}) {
    while (pages.size() * 64 < end) pages.Append(pool_.Take(Fill::kZero).value());
    tree_.Insert({}, First(all, end), pages);
    tree_.CheckIntegrity();
  }
  EXPECT_EQ(tree_.node_count(), 1);
  EXPECT_EQ(tree_.Find({}, all).kv_tokens, 500);
}

TEST_F(RadixTreeTest, CuttingLeavesFreesEveryPageThatNoSequenceHolds) {
  const Tokens a = Ids(0, 300);
  const Tokens b = Join(Ids(0, 100), Ids(5000, 100));
  Insert(a);
  const PageTable held = PagesOf(b);
  tree_.Insert({}, b, held);
  // A's remainder goes; the shared page at 64..99 must then be the one that b holds.
  Node* const rest = tree_.Find({}, a).nodes.back();
  tree_.Shorten(*rest, rest->begin);
  tree_.CheckIntegrity();
  EXPECT_EQ(pool_.cached_count(), 0);
  EXPECT_EQ(pool_.live_count(), held.size());
}

TEST_F(RadixTreeTest, ResumesAtTheDeepestCheckpointThatLeavesATokenToRun) {
  const Tokens a = Ids(0, 300);
  Insert(a);
  for (const int32_t at : {100, 200, 300}) {
    tree_.NodeAt({}, a, at).checkpoint =
        Checkpoint{slots_.Take(Fill::kZero)->Share(Holder::kCached), CheckpointKind::kEnd};
  }
  tree_.CheckIntegrity();
  const auto state_at = [&](const std::span<const TokenId> tokens, const int32_t limit) {
    return Resume(tree_.Find({}, tokens), limit, true).match.state_tokens;
  };
  EXPECT_EQ(state_at(a, 299), 200);  // The checkpoint at 300 would leave nothing to run.
  EXPECT_EQ(state_at(a, 300), 300);
  EXPECT_EQ(state_at(First(a, 201), 200), 200);
  EXPECT_EQ(state_at(First(a, 200), 199), 100);
  EXPECT_EQ(state_at(First(a, 100), 99), 0);
  const ResumePoint dense = Resume(tree_.Find({}, a), 299, false);
  EXPECT_EQ(dense.match.state_tokens, 299);
  EXPECT_EQ(dense.match.kv_tokens, 300);
}

// Nodes grow, part and are cut: what a node calls its pages stays what they are.
TEST_F(RadixTreeTest, NamesStayThoseOfTheirPages) {
  sim::Random random(4);
  const Tokens all = Ids(0, 1000);
  for (int round = 0; round < 400; ++round) {
    Tokens tokens(all.begin(), all.begin() + random.Between(1, 1000));
    if (random.Percent(50)) tokens = Join(std::move(tokens), Ids(1000 * random.Between(1, 3), random.Between(1, 300)));
    Insert(tokens);
    NamePages(random);
    tree_.NodeAt({}, tokens, random.Between(1, static_cast<int32_t>(tokens.size())));
    NamePages(random);
    for (int32_t cuts = random.Between(0, 3); cuts > 0 && tree_.node_count() > 1; --cuts) {
      Node* leaf = nullptr;
      tree_.ForEach([&](const Scope&, Node& node) { leaf = node.is_leaf() ? &node : leaf; });
      tree_.Shorten(*leaf, random.Between(leaf->begin, leaf->end - 1));
    }
    NamePages(random);
    tree_.CheckIntegrity();
  }
}

// Random inserts and cuts against a plain list of prefixes.
TEST_F(RadixTreeTest, AgreesWithAListOfPrefixes) {
  sim::Random random(3);
  std::vector<Tokens> held;
  for (int round = 0; round < 3000; ++round) {
    Tokens tokens;
    if (!held.empty() && random.Percent(70)) {
      const Tokens& from = held[random.Between(0, static_cast<int32_t>(held.size()) - 1)];
      tokens.assign(from.begin(), from.begin() + random.Between(0, static_cast<int32_t>(from.size())));
    }
    const int32_t more = random.Between(1, 150);
    for (int32_t i = 0; i < more; ++i) tokens.emplace_back(random.Between(0, 2));
    int32_t expected = 0;
    for (const Tokens& other : held) {
      const auto end = std::mismatch(tokens.begin(), tokens.end(), other.begin(), other.end()).first;
      expected = std::max(expected, static_cast<int32_t>(end - tokens.begin()));
    }
    ASSERT_EQ(tree_.Find({}, tokens).kv_tokens, expected);
    Insert(tokens);
    held.push_back(tokens);
    if (held.size() < 12) continue;
    // Everything goes, leaf by leaf.
    while (tree_.node_count() > 0) {
      Node* leaf = nullptr;
      tree_.ForEach([&](const Scope&, Node& node) { leaf = node.is_leaf() ? &node : leaf; });
      tree_.Shorten(*leaf, random.Percent(50) ? leaf->begin : random.Between(leaf->begin, leaf->end - 1));
      tree_.CheckIntegrity();
    }
    held.clear();
    ASSERT_EQ(pool_.taken_count(), 0);
  }
}

}  // namespace
}  // namespace invar::cache
