// A pass: one walk over the tree, dead KV, then units from a heap until what is asked for fits and a little more (so
// that the next need does not cost a pass again). What goes changes its neighbours' values: demand falls to the
// checkpoint above, recomputation of the one below grows. So a unit is valued again when it comes up, and goes back
// where it has become dearer.
#include "cache/evict/evictor.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "cache/state_shape.h"

namespace invar::cache {
namespace {

using kernels::kPageTokens;

// The share of the budget a pass frees beyond what is asked for: a pass walks the whole tree.
constexpr int64_t kSlackDivisor = 128;
// The price follows a pass by this much: a pass frees a 128th, so a few tens of passes see the whole cache.
constexpr double kPriceStep = 1.0 / 16;

// Whether a sequence holds KV of `node`, for judging what evicting it would free: a sequence holds pages from the front
// on, the first of a node maybe as a copy of its own.
bool IsLive(const CacheMemory& memory, const Node& node) {
  const size_t pages = std::min<size_t>(node.pages.size(), 2);
  return std::any_of(node.pages.begin(), node.pages.begin() + pages,
                     [&](const PageRef& page) { return memory.pages().LiveClaims(page.id()) > 0; });
}

// The end of the positions of `node` that some sequence holds: a leaf can be cut down to it.
int32_t LiveEnd(const CacheMemory& memory, const Node& node) {
  for (size_t p = node.pages.size(); p-- > 0;) {
    if (memory.pages().LiveClaims(node.pages[p].id()) == 0) continue;
    return std::min(node.end, (node.first_page() + static_cast<int32_t>(p) + 1) * kPageTokens);
  }
  return node.begin;
}

constexpr int32_t kNoParent = -1;

// A node at the time of the walk, in the walk's order: parents before children.
struct Place {
  Node* node = nullptr;  // Null: gone.
  int32_t parent = kNoParent;
  int32_t checkpoints_below = 0;
  Prospect demand = {};  // Of the node and what is below, as far as no deeper checkpoint covers it.
  TimeNs used_at = 0;
};

std::vector<Place> Walk(const RadixTree& tree) {
  std::vector<Place> places;
  places.reserve(tree.node_count());
  std::vector<int32_t> path;  // From below the root to the node before.
  tree.ForEach([&](const Scope&, Node& node) {
    while (!path.empty() && places[path.back()].node != node.parent) path.pop_back();
    places.push_back({.node = &node, .parent = path.empty() ? kNoParent : path.back()});
    path.push_back(static_cast<int32_t>(places.size()) - 1);
  });
  return places;
}

}  // namespace

// The units of one pass.
class Evictor::Pass {
 public:
  Pass(Evictor& evictor, const EvictionOrder& order, const TimeNs now)
      : evictor_(evictor), order_(order), now_(now), places_(Walk(evictor.tree_)) {
    SumDemand();
    for (int32_t i = 0; i < std::ssize(places_); ++i) Offer(i);
  }

  // Evicts until `bytes` fit. False: nothing is left to evict.
  bool Run(const int64_t bytes) {
    while (!evictor_.Fits(bytes)) {
      if (heap_.empty()) return false;
      const Entry entry = heap_.top();
      heap_.pop();
      const int32_t i = entry.place;
      if (!IsUnit(i)) continue;
      const EvictionUnit unit = UnitOf(i);
      const double value = order_.Value(unit);
      if (value > entry.value) {
        heap_.push(EntryOf(i, value));
        continue;
      }
      dearest_ = std::max(dearest_, SavingPerByte(unit));
      Evict(i, bytes);
    }
    return true;
  }

  double dearest() const { return dearest_; }

 private:
  struct Entry {
    double value;
    TimeNs used_at;
    int32_t place;
    // The least is on top; of equals the longest unused, then the deeper.
    bool operator<(const Entry& other) const {
      return std::tie(other.value, other.used_at, place) < std::tie(value, used_at, other.place);
    }
  };

  void SumDemand() {
    evictor_.demand_.StartCensus();
    for (int32_t i = static_cast<int32_t>(places_.size()) - 1; i >= 0; --i) {
      Place& place = places_[i];
      const Node& node = *place.node;
      evictor_.demand_.Count(node.use, now_);
      place.demand += evictor_.demand_.Expected(node.use, now_);
      place.used_at = std::max(place.used_at, node.use.used_at);
      if (place.parent == kNoParent) continue;
      Place& above = places_[place.parent];
      const bool covers = node.checkpoint.has_value();
      above.checkpoints_below += place.checkpoints_below + (covers ? 1 : 0);
      if (!covers) above.demand += place.demand;
      above.used_at = std::max(above.used_at, place.used_at);
    }
    evictor_.demand_.EndCensus();
  }

  // What may be evicted now: a checkpoint no sequence resumes from, or a dense model's leaf with pages to spare.
  bool IsUnit(const int32_t i) const {
    const Node* const node = places_[i].node;
    if (node == nullptr) return false;
    if (!evictor_.has_state_) return node->is_leaf() && LiveEnd(evictor_.memory_, *node) < node->end;
    return node->checkpoint.has_value() && evictor_.memory_.slots().LiveClaims(node->checkpoint->state.id()) == 0;
  }

  EvictionUnit UnitOf(const int32_t i) const {
    const Place& place = places_[i];
    const CacheMemory& memory = evictor_.memory_;
    EvictionUnit unit{.demand = place.demand, .used_at = place.used_at};
    if (evictor_.has_state_) unit.bytes = memory.slots().block_bytes();
    if (place.checkpoints_below == 0) {
      // Nothing deeper needs this KV, up to the next checkpoint or branch.
      const Node* node = place.node;
      do {
        if (!IsLive(memory, *node)) {
          unit.bytes += static_cast<int64_t>(node->pages.size()) * memory.pages().block_bytes();
        }
        node = node->parent;
      } while (evictor_.has_state_ && !node->is_root() && !node->checkpoint.has_value() && node->children.size() == 1);
    }
    unit.recompute = place.node->end - DepthAbove(i);
    return unit;
  }

  // Where requests resume that do not find place `i`.
  int32_t DepthAbove(const int32_t i) const {
    if (!evictor_.has_state_) return places_[i].node->begin;
    const int32_t above = CheckpointAbove(i);
    return above == kNoParent ? 0 : places_[above].node->end;
  }
  int32_t CheckpointAbove(const int32_t i) const {
    int32_t above = places_[i].parent;
    while (above != kNoParent && !places_[above].node->checkpoint.has_value()) above = places_[above].parent;
    return above;
  }

  Entry EntryOf(const int32_t i, const double value) const { return {value, places_[i].used_at, i}; }
  void Offer(const int32_t i) {
    if (IsUnit(i)) heap_.push(EntryOf(i, order_.Value(UnitOf(i))));
  }

  void Evict(const int32_t i, const int64_t bytes) {
    Node& node = *places_[i].node;
    if (evictor_.listener_ != nullptr) evictor_.listener_->Evicting(node, now_);
    const int32_t above = evictor_.has_state_ ? CheckpointAbove(i) : places_[i].parent;
    if (evictor_.has_state_) {
      if (above != kNoParent) places_[above].demand += places_[i].demand;
      for (int32_t p = places_[i].parent; p != kNoParent; p = places_[p].parent) --places_[p].checkpoints_below;
      evictor_.DropCheckpoint(node);
    }
    const Node* const left = evictor_.TrimUpward(node, bytes, now_);
    for (int32_t p = i; p != kNoParent && places_[p].node != left; p = places_[p].parent) places_[p].node = nullptr;
    // The unit above may have become cheaper for its bytes, or a unit at all.
    if (above != kNoParent) {
      if (!evictor_.has_state_ && places_[i].node == nullptr) places_[above].demand += places_[i].demand;
      Offer(above);
    }
  }

  Evictor& evictor_;
  const EvictionOrder& order_;
  const TimeNs now_;
  std::vector<Place> places_;
  std::priority_queue<Entry> heap_;
  double dearest_ = 0;
};

bool Evictor::MakeRoom(const int64_t bytes, const EvictionOrder& order, const TimeNs now) {
  if (Fits(bytes)) return true;
  ++counts_.passes;
  if (has_state_) DropDeadKv(now);
  if (!Fits(bytes)) {
    Pass pass(*this, order, now);
    if (!pass.Run(bytes + memory_.budget_bytes() / kSlackDivisor) && !Fits(bytes)) return false;
    price_per_byte_ += kPriceStep * (pass.dearest() - price_per_byte_);
  }
  tree_.DropEmptyRoots();
  return true;
}

// A leaf without a checkpoint serves nobody: the state could not follow.
void Evictor::DropDeadKv(const TimeNs now) {
  const std::vector<Place> places = Walk(tree_);
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    Node& node = *place->node;
    if (!node.is_leaf() || node.checkpoint.has_value()) continue;
    const int32_t live_end = LiveEnd(memory_, node);
    if (live_end == node.end) continue;
    counts_.pages += StateShape::PagesFor(node.end) - StateShape::PagesFor(live_end);
    if (live_end == node.begin) demand_.Fall(node.use, node.parent->is_root() ? nullptr : &node.parent->use, now);
    tree_.Shorten(node, live_end);
  }
}

void Evictor::DropCheckpoint(Node& node) {
  Promote(node);
  if (node.checkpoint.has_value()) ++counts_.checkpoints[static_cast<size_t>(node.checkpoint->kind)];
  node.checkpoint.reset();
}

// Cuts the KV at and above `node` that now leads to nothing; of a dense model only what `dense_bytes` more ask for.
// Gives the deepest node left of the path (null: all the way to the root is gone).
Node* Evictor::TrimUpward(Node& node, const int64_t dense_bytes, const TimeNs now) {
  Node* left = &node;
  while (!left->is_root() && left->is_leaf() && !left->checkpoint.has_value()) {
    int32_t end = LiveEnd(memory_, *left);
    if (!has_state_) {
      const int64_t excess = memory_.used_bytes() + dense_bytes - memory_.budget_bytes();
      const int64_t block_bytes = std::max<int64_t>(1, memory_.pages().block_bytes());
      const int64_t pages = (excess + block_bytes - 1) / block_bytes;
      const int64_t last_page = int64_t{left->end - 1} / kPageTokens;
      end =
          std::max({end, left->begin, static_cast<int32_t>(std::max<int64_t>(0, last_page - pages + 1) * kPageTokens)});
    }
    if (end >= left->end) return left;
    counts_.pages += StateShape::PagesFor(left->end) - StateShape::PagesFor(end);
    Node* const parent = left->parent;
    const bool whole = end == left->begin;
    if (whole) demand_.Fall(left->use, parent->is_root() ? nullptr : &parent->use, now);
    tree_.Shorten(*left, end);
    if (!whole) return left;
    left = parent;
    if (!has_state_) break;
  }
  return left->is_root() ? nullptr : left;
}

void Evictor::PutOnProbation(Node& node, const int64_t budget_bytes, const TimeNs now) {
  Check(has_state_ && node.checkpoint.has_value(), "a checkpoint is put on probation", node.end);
  probation_.push_back(&node);
  while (probation_count() * memory_.slots().block_bytes() > budget_bytes) {
    Node& oldest = *probation_.front();
    if (listener_ != nullptr) listener_->Evicting(oldest, now);
    DropCheckpoint(oldest);
    TrimUpward(oldest, 0, now);
  }
}

void Evictor::Promote(const Node& node) {
  const auto place = std::find(probation_.begin(), probation_.end(), &node);
  if (place != probation_.end()) probation_.erase(place);
}

void Evictor::ForgetProbation(const std::function<bool(const Scope&)>& is_meant) {
  std::erase_if(probation_, [&](const Node* const node) { return is_meant(RadixTree::ScopeOf(*node)); });
}

void Evictor::CheckIntegrity() const {
  if (probation_.empty()) return;
  const std::unordered_set<const Node*> waiting(probation_.begin(), probation_.end());
  Check(waiting.size() == probation_.size(), "a node is on probation once", waiting.size(), probation_.size());
  size_t found = 0;
  tree_.ForEach(
      [&](const Scope&, const Node& node) { found += node.checkpoint.has_value() && waiting.contains(&node) ? 1 : 0; });
  Check(found == waiting.size(), "what is on probation is in the tree, with a checkpoint", found, waiting.size());
}

int64_t Evictor::DeadKvBytes() const {
  if (!has_state_) return 0;
  std::vector<Place> places = Walk(tree_);
  std::vector<bool> counted;  // By page id.
  const auto count = [&](const PageId id) {
    if (id.value() >= std::ssize(counted)) counted.resize(2 * static_cast<size_t>(id.value()) + 1);
    const bool first = !counted[id.value()];
    counted[id.value()] = true;
    return first;
  };
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const int32_t useful = place->checkpoints_below + (place->node->checkpoint.has_value() ? 1 : 0);
    if (useful == 0) continue;
    if (place->parent != kNoParent) places[place->parent].checkpoints_below += useful;
    for (const PageRef& page : place->node->pages) count(page.id());
  }
  int64_t dead = 0;
  for (const Place& place : places) {
    for (const PageRef& page : place.node->pages) {
      if (memory_.pages().LiveClaims(page.id()) > 0 || !count(page.id())) continue;
      dead += memory_.pages().block_bytes();
    }
  }
  return dead;
}

}  // namespace invar::cache
