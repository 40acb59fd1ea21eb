// Walking, splitting and appending of radix_tree.h.
#include "cache/tree/radix_tree.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "cache/state_shape.h"

namespace invar::cache {
namespace {

using kernels::kPageTokens;

constexpr auto PagesFor = StateShape::PagesFor;

// Where a child that starts with `token` is or would stand.
std::vector<std::unique_ptr<Node>>::const_iterator ChildPlace(const Node& node, const TokenId token) {
  return std::lower_bound(
      node.children.begin(), node.children.end(), token,
      [](const std::unique_ptr<Node>& child, const TokenId wanted) { return child->tokens.front() < wanted; });
}

Node* ChildOf(const Node& node, const TokenId token) {
  const auto place = ChildPlace(node, token);
  return place != node.children.end() && (*place)->tokens.front() == token ? place->get() : nullptr;
}

int32_t EqualTokens(const std::span<const TokenId> a, const std::span<const TokenId> b) {
  const size_t length = std::min(a.size(), b.size());
  // Whole blocks by memcmp, which the library does many tokens at a time; the last by token.
  constexpr size_t kBlock = 256;
  static_assert(std::has_unique_object_representations_v<TokenId>);
  size_t at = 0;
  while (at + kBlock <= length && std::memcmp(&a[at], &b[at], kBlock * sizeof(TokenId)) == 0) at += kBlock;
  return static_cast<int32_t>(std::mismatch(a.begin() + at, a.begin() + length, b.begin() + at).first - a.begin());
}

// KV of positions [begin, end) out of a sequence's pages.
std::vector<PageRef> ShareRange(const PageTable& pages, const int32_t begin, const int32_t end) {
  std::vector<PageRef> shared;
  for (int32_t p = begin / kPageTokens; p < PagesFor(end); ++p) shared.push_back(pages.ref(p).Share(Holder::kCached));
  return shared;
}

// Whether `node` ends inside a page that its children go on with.
bool SharesLastPage(const Node& node) { return node.end % kPageTokens != 0 && !node.pages.empty() && !node.is_leaf(); }

bool HasPageOfAChild(const Node& node) {
  return std::any_of(node.children.begin(), node.children.end(), [&](const std::unique_ptr<Node>& child) {
    return !child->pages.empty() && child->pages.front().id() == node.pages.back().id();
  });
}

// Keeps the rule of the header, a shared last page is a child's, from `node` upward: a short node's last page may be
// its first too, and so its parent's.
void AdoptPageOfAChild(Node* node) {
  for (; node != nullptr && SharesLastPage(*node) && !HasPageOfAChild(*node); node = node->parent) {
    const auto child = std::find_if(node->children.begin(), node->children.end(),
                                    [](const std::unique_ptr<Node>& c) { return !c->pages.empty(); });
    if (child == node->children.end()) return;
    node->pages.back() = (*child)->pages.front().Share(Holder::kCached);
  }
}

// A path may have a node for every token, so nothing here recurses: not even the end of a tree.
void TearDown(std::unique_ptr<Node> root) {
  std::vector<std::unique_ptr<Node>> open;
  open.push_back(std::move(root));
  while (!open.empty()) {
    const std::unique_ptr<Node> node = std::move(open.back());
    open.pop_back();
    std::move(node->children.begin(), node->children.end(), std::back_inserter(open));
    node->children.clear();
  }
}

void CheckNode(const Node& node) {
  Check(node.end - node.begin == static_cast<int32_t>(node.tokens.size()), "a node holds its range", node.begin);
  Check(node.is_root() == (node.end == 0), "only a root is empty", node.end);
  if (!node.pages.empty()) {
    const int32_t pages = PagesFor(node.end) - node.first_page();
    Check(pages == static_cast<int32_t>(node.pages.size()), "KV of a node is whole", pages, node.pages.size());
  }
  Check(static_cast<int32_t>(node.names.size()) <= node.whole_pages(), "whole pages have names", node.begin);
  Check(!node.is_root() || !node.checkpoint.has_value(), "a root has no checkpoint");
  const bool child_has_kv = std::any_of(node.children.begin(), node.children.end(),
                                        [](const std::unique_ptr<Node>& child) { return child->has_kv(); });
  if (SharesLastPage(node) && child_has_kv) Check(HasPageOfAChild(node), "a shared last page is a child's", node.end);
  for (size_t i = 0; i < node.children.size(); ++i) {
    const Node& child = *node.children[i];
    Check(child.parent == &node && child.begin == node.end, "a child continues its parent", child.begin);
    Check(i == 0 || node.children[i - 1]->tokens.front() < child.tokens.front(), "children differ and are ordered");
  }
}

// `visit(node)` for `root` and all below, parents first and children in order.
template <typename Visit>
void Walk(Node& root, const Visit& visit) {
  std::vector<Node*> open = {&root};
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    visit(*node);
    for (auto child = node->children.rbegin(); child != node->children.rend(); ++child) open.push_back(child->get());
  }
}

}  // namespace

std::vector<const PageRef*> PagesAlong(const std::span<const Node* const> path, const int32_t tokens) {
  std::vector<const PageRef*> pages(PagesFor(tokens));
  for (const Node* const node : path) {
    if (node->begin >= tokens) break;
    const int32_t end = std::min(PagesFor(tokens), PagesFor(node->end));
    for (int32_t p = node->first_page(); p < end; ++p) pages[p] = &node->pages[p - node->first_page()];
  }
  return pages;
}

RadixTree::~RadixTree() {
  for (auto& [scope, root] : roots_) TearDown(std::move(root));
}

Match RadixTree::Find(const Scope& scope, const std::span<const TokenId> tokens) const {
  Match match;
  const auto root = roots_.find(scope);
  if (root == roots_.end()) return match;
  const Node* node = root->second.get();
  bool kv = true;
  while (match.tokens == node->end && match.tokens < static_cast<int32_t>(tokens.size())) {
    Node* const child = ChildOf(*node, tokens[match.tokens]);
    if (child == nullptr) break;
    match.nodes.push_back(child);
    match.tokens += EqualTokens(child->tokens, tokens.subspan(match.tokens));
    kv = kv && child->has_kv();
    if (kv) match.kv_tokens = match.tokens;
    node = child;
  }
  return match;
}

Node& RadixTree::Insert(const Scope& scope, const std::span<const TokenId> tokens, const PageTable& pages) {
  Check(!tokens.empty(), "a prefix has a token");
  const auto entry = roots_.try_emplace(scope).first;
  std::unique_ptr<Node>& root = entry->second;
  if (root == nullptr) {
    root = std::make_unique<Node>();
    root->scope = &entry->first;
    root->id = ++last_id_;
  }
  Node* node = root.get();
  const int32_t length = static_cast<int32_t>(tokens.size());
  while (node->end < length) {
    Node* child = ChildOf(*node, tokens[node->end]);
    if (child == nullptr) return Append(*node, tokens, pages);
    const int32_t equal = child->begin + EqualTokens(child->tokens, tokens.subspan(child->begin));
    if (equal < child->end) child = &Split(*child, equal);
    if (!child->has_kv()) {
      child->pages = ShareRange(pages, child->begin, child->end);
      AdoptPageOfAChild(child);
      AdoptPageOfAChild(node);
    }
    node = child;
  }
  return *node;
}

// `tokens` after `node`: in the node itself where it is a leaf whose last page the sequence went on writing.
Node& RadixTree::Append(Node& node, const std::span<const TokenId> tokens, const PageTable& pages) {
  const int32_t length = static_cast<int32_t>(tokens.size());
  const bool same_page = node.end % kPageTokens == 0 ||
                         (!node.pages.empty() && node.pages.back().id() == pages.ref(PagesFor(node.end) - 1).id());
  if (!node.is_root() && node.is_leaf() && node.has_kv() && !node.checkpoint.has_value() &&
      node.use.origin == UseOrigin::kNone && same_page) {
    std::vector<PageRef> more = ShareRange(pages, PagesFor(node.end) * kPageTokens, length);
    std::move(more.begin(), more.end(), std::back_inserter(node.pages));
    node.tokens.insert(node.tokens.end(), tokens.begin() + node.end, tokens.end());
    node.end = length;
    return node;
  }
  auto child = std::make_unique<Node>();
  child->id = ++last_id_;
  child->parent = &node;
  child->begin = node.end;
  child->end = length;
  child->tokens.assign(tokens.begin() + node.end, tokens.end());
  child->pages = ShareRange(pages, child->begin, length);
  Node& added = *child;
  node.children.insert(ChildPlace(node, added.tokens.front()), std::move(child));
  AdoptPageOfAChild(&node);
  ++node_count_;
  return added;
}

Node& RadixTree::NodeAt(const Scope& scope, const std::span<const TokenId> tokens, const int32_t at) {
  const auto root = roots_.find(scope);
  Check(root != roots_.end() && at > 0, "the path is there", at);
  Node* node = root->second.get();
  while (node->end < at) {
    node = ChildOf(*node, tokens[node->end]);
    Check(node != nullptr, "the path is as long as asked", at);
  }
  return node->end == at ? *node : Split(*node, at);
}

// The new upper part [begin, at) of `node`, which keeps its checkpoint, children and use and starts at `at`.
Node& RadixTree::Split(Node& node, const int32_t at) {
  Check(node.begin < at && at < node.end, "a split lies inside its node", at);
  const int32_t head = at - node.begin;
  auto upper = std::make_unique<Node>();
  upper->id = ++last_id_;
  upper->segment = node.segment;
  upper->parent = node.parent;
  upper->begin = node.begin;
  upper->end = at;
  upper->tokens.assign(node.tokens.begin(), node.tokens.begin() + head);
  upper->use.used_at = node.use.used_at;
  if (!node.pages.empty()) {
    const int32_t shared = at / kPageTokens - node.first_page();  // The lower part's first page.
    for (int32_t p = 0; p < PagesFor(at) - node.first_page(); ++p) {
      upper->pages.push_back(node.pages[p].Share(Holder::kCached));
    }
    node.pages.erase(node.pages.begin(), node.pages.begin() + shared);
  }
  const auto named = std::min<ptrdiff_t>(upper->whole_pages(), std::ssize(node.names));
  upper->names.assign(node.names.begin(), node.names.begin() + named);
  node.names.erase(node.names.begin(), node.names.begin() + named);
  std::unique_ptr<Node>& place =
      *std::find_if(node.parent->children.begin(), node.parent->children.end(),
                    [&](const std::unique_ptr<Node>& child) { return child.get() == &node; });
  std::unique_ptr<Node> lower = std::move(place);
  lower->parent = upper.get();
  lower->begin = at;
  lower->tokens.erase(lower->tokens.begin(), lower->tokens.begin() + head);
  upper->children.push_back(std::move(lower));
  place = std::move(upper);
  ++node_count_;
  return *place;
}

void RadixTree::Shorten(Node& leaf, const int32_t end) {
  Check(leaf.is_leaf() && !leaf.is_root() && leaf.begin <= end && end < leaf.end, "a leaf is cut at its end", end);
  if (end == leaf.begin) {
    Node& parent = *leaf.parent;
    parent.children.erase(ChildPlace(parent, leaf.tokens.front()));
    AdoptPageOfAChild(&parent);
    --node_count_;
    return;
  }
  leaf.checkpoint.reset();
  leaf.tokens.resize(end - leaf.begin);
  leaf.end = end;
  leaf.names.resize(std::min(leaf.names.size(), static_cast<size_t>(leaf.whole_pages())));
  if (leaf.pages.empty()) return;
  leaf.pages.erase(leaf.pages.begin() + (PagesFor(end) - leaf.first_page()), leaf.pages.end());
}

void RadixTree::Clear(const std::function<bool(const Scope&)>& is_meant) {
  for (auto it = roots_.begin(); it != roots_.end();) {
    if (!is_meant(it->first)) {
      ++it;
      continue;
    }
    Walk(*it->second, [&](const Node& node) { node_count_ -= node.is_root() ? 0 : 1; });
    TearDown(std::move(it->second));
    it = roots_.erase(it);
  }
}

void RadixTree::DropEmptyRoots() {
  std::erase_if(roots_, [](const auto& entry) { return entry.second->is_leaf(); });
}

const Node* RadixTree::FirstRoot(const Scope& scope, const bool is_after) const {
  const auto root = is_after ? roots_.upper_bound(scope) : roots_.lower_bound(scope);
  return root == roots_.end() ? nullptr : root->second.get();
}

void RadixTree::ForEach(const std::function<void(const Scope&, Node&)>& visit) const {
  for (const auto& [scope, root] : roots_) {
    Walk(*root, [&](Node& node) {
      if (!node.is_root()) visit(scope, node);
    });
  }
}

int64_t RadixTree::RootId(const Scope& scope) const {
  const auto root = roots_.find(scope);
  return root == roots_.end() ? 0 : root->second->id;
}

const Scope& RadixTree::ScopeOf(const Node& node) {
  const Node* root = &node;
  while (!root->is_root()) root = root->parent;
  return *root->scope;
}

void RadixTree::CheckIntegrity() const {
  int64_t count = 0;
  for (const auto& [scope, root] : roots_) {
    Walk(*root, [&](const Node& node) {
      CheckNode(node);
      count += node.is_root() ? 0 : 1;
    });
  }
  Check(count == node_count_, "nodes are counted", count, node_count_);
}

}  // namespace invar::cache
