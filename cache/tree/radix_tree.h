// RadixTree: which prefixes there is KV and state of. One tree a Scope; a node is a run of tokens after its parent,
// with the pages of its positions and, where there is one, the checkpoint of the recurrent state after its last token.
// Tokens themselves are compared; nothing is found by a hash.
//
//   root --[0, 300)-- a --[300, 420)-- b (checkpoint at 420)
//                      \--[300, 512)-- c (checkpoint at 512)
//
// A page belongs to every node it covers positions of. Where two nodes part inside a page, each has its own copy of
// that page with the shared positions in it, so along a path the page of the deeper node holds all of both. A parent's
// last page, if it is shared with its children, is one of theirs: so whatever no sequence holds can be had by cutting
// leaves.
// KV of a node is there as a whole or not at all; a node without it still says what a tier holds or what was asked for.
// Threads: engine thread only. Nothing is moved by finding: pointers to nodes stay good until the node is removed,
// split (the pointer then means the lower part) or the tree ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cache/page_name.h"
#include "cache/page_table.h"
#include "cache/prefix_match.h"
#include "cache/scope.h"
#include "cache/slot_pool.h"
#include "cache/tree/class_key.h"
#include "cache/tree/node_use.h"
#include "kernels/numerics.h"

namespace invar::cache {

struct Checkpoint {
  SlotRef state;
  CheckpointKind kind;
};

// What a prefix brought beyond what was there, and what it is a case of: positions [from, to).
struct PrivateSegment {
  ClassKey key;
  int32_t from = 0;
  int32_t to = 0;
};

struct Node {
  int64_t id = 0;                // Never reused; the lower part of a split keeps it.
  Node* parent = nullptr;        // Null: a root.
  const Scope* scope = nullptr;  // Of a root.
  int32_t begin = 0;             // Positions [begin, end) of the sequence.
  int32_t end = 0;
  std::vector<TokenId> tokens;                  // end - begin of them.
  std::vector<std::unique_ptr<Node>> children;  // Ordered by their first token.
  std::vector<PageRef> pages;                   // Of positions [begin, end), the first from page begin / 64; or none.
  std::optional<Checkpoint> checkpoint;         // State after `end` tokens.
  NodeUse use;                                  // Of requests whose match ended here.
  std::optional<PrivateSegment> segment;        // That the node is a part of.
  std::vector<PageName> names;                  // Of its first whole pages, as far as somebody has worked them out.

  bool is_root() const { return parent == nullptr; }
  bool is_leaf() const { return children.empty(); }
  bool has_kv() const { return !pages.empty() || begin == end; }
  int32_t first_page() const { return begin / kernels::kPageTokens; }
  int32_t whole_pages() const { return end / kernels::kPageTokens - first_page(); }  // That end in it.
};

// What a sequence of tokens finds. `nodes` lead from below the root to the node the match ends in.
struct Match {
  std::vector<Node*> nodes;
  int32_t tokens = 0;     // Equal tokens along the path, whether their KV is there or not.
  int32_t kv_tokens = 0;  // Of these, from the start on, with KV.
};

// The pages of positions [0, tokens) along `path`, which leads down from below the root: of each page that of the
// deepest node. Requires: the nodes have KV up to there.
std::vector<const PageRef*> PagesAlong(std::span<const Node* const> path, int32_t tokens);

class RadixTree {
 public:
  RadixTree() = default;
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  Match Find(const Scope& scope, std::span<const TokenId> tokens) const;

  // Makes the tree hold `tokens` with their KV; gives the node that ends there. `pages` are the sequence's own, from
  // position 0 on; what the tree lacks is shared from them as kCached. Requires: at least one token; pages cover all.
  Node& Insert(const Scope& scope, std::span<const TokenId> tokens, const PageTable& pages);

  // A node that ends at `at` tokens of a path that holds at least as many; splits one where needed.
  // Requires: 0 < at <= Find(tokens).tokens.
  Node& NodeAt(const Scope& scope, std::span<const TokenId> tokens, int32_t at);

  // Cuts the last positions of a leaf off, or the whole leaf (`end` == node.begin), with its KV and checkpoint. Parents
  // that are left without child and checkpoint keep standing: they hold KV that still is a prefix.
  void Shorten(Node& leaf, int32_t end);
  // Removes every node of the scopes that are meant.
  void Clear(const std::function<bool(const Scope&)>& is_meant);
  // Forgets scopes without a node.
  void DropEmptyRoots();

  // Parents before children, in a fixed order. `visit` must not change the tree.
  void ForEach(const std::function<void(const Scope&, Node&)>& visit) const;
  int64_t node_count() const { return node_count_; }
  // The root of the first scope that is not before `scope` (`is_after`: that is behind it); null: none.
  const Node* FirstRoot(const Scope& scope, bool is_after) const;

  static const Scope& ScopeOf(const Node& node);
  // 0: the scope has no tree.
  int64_t RootId(const Scope& scope) const;

  // Walks everything; stops the process on a broken invariant.
  void CheckIntegrity() const;

 private:
  Node& Split(Node& node, int32_t at);
  Node& Append(Node& node, std::span<const TokenId> tokens, const PageTable& pages);

  std::map<Scope, std::unique_ptr<Node>> roots_;
  int64_t node_count_ = 0;  // Roots not counted.
  int64_t last_id_ = 0;
};

}  // namespace invar::cache
