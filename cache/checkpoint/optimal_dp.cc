// Both forms share one hull. Everything is int64: values stay within 2 x kCostMax, and only the comparison of two
// crossings multiplies a value by a depth, in 128 bits.
#include "cache/checkpoint/optimal_dp.h"

#include <algorithm>

#include "base/check.h"

namespace invar::cache {
namespace {

// A candidate for the last checkpoint: cost of the depths before it and from it on, as a function of x = P(j).
struct Line {
  int64_t intercept;
  int64_t drop;   // Minus the slope: the checkpoint's depth less the restore cost.
  int32_t index;  // Of the checkpoint in the support.
  int64_t At(const int64_t x) const { return intercept - drop * x; }
};

// Lower hull of lines added with rising `drop`, asked at rising x. Picture: lines_[front_..] cross their neighbours at
// strictly rising x, so the first one that its successor does not undercut is the minimum.
class Hull {
 public:
  explicit Hull(const size_t capacity) { lines_.reserve(capacity); }

  void Clear() {
    lines_.clear();
    front_ = 0;
  }

  void Add(const Line& line) {
    while (lines_.size() >= front_ + 2 && IsNeverBelow(lines_[lines_.size() - 2], lines_.back(), line))
      lines_.pop_back();
    lines_.push_back(line);
  }

  // The lowest line at x, of equal ones the first added; nullptr where none is.
  const Line* Lowest(const int64_t x) {
    if (lines_.empty()) return nullptr;
    while (front_ + 1 < lines_.size() && lines_[front_ + 1].At(x) < lines_[front_].At(x)) ++front_;
    return &lines_[front_];
  }

 private:
  // Whether b's crossing with c comes no later than its crossing with a: then a or c is as low everywhere, and where
  // all three meet the tie goes to a.
  static bool IsNeverBelow(const Line& a, const Line& b, const Line& c) {
    using Wide = __int128;
    return Wide{c.intercept - b.intercept} * (b.drop - a.drop) <= Wide{b.intercept - a.intercept} * (c.drop - b.drop);
  }

  std::vector<Line> lines_;
  size_t front_ = 0;
};

struct RunningSums {
  std::vector<int64_t> weight;  // P: [K + 1], of the first j support points.
  std::vector<int64_t> moment;  // Q: weight x depth.

  explicit RunningSums(const DemandView demand) : weight(demand.size() + 1), moment(demand.size() + 1) {
    for (size_t j = 0; j < demand.size(); ++j) {
      weight[j + 1] = weight[j] + demand[j].weight;
      moment[j + 1] = moment[j] + demand[j].weight * demand[j].depth;
    }
  }

  // Last checkpoint on support point i, where what lies before costs `before`.
  Line LineOf(const int32_t i, const int64_t drop, const int64_t before) const {
    return {.intercept = before - moment[i] + drop * weight[i], .drop = drop, .index = i};
  }
};

}  // namespace

ChainDp::ChainDp(const DemandView demand, const int32_t places, const int32_t restore_tokens) {
  CheckDemand(demand);
  Check(places >= 0 && restore_tokens >= 0, "places and the restore cost are not negative", places, restore_tokens);
  const auto points = static_cast<int32_t>(demand.size());
  const int32_t layers = std::min(places, points);
  const RunningSums sums(demand);
  depths_.reserve(points);
  for (const DepthWeight& point : demand) depths_.push_back(point.depth);
  costs_.reserve(layers + 1);
  costs_.push_back(sums.moment.back());
  choices_.assign(static_cast<size_t>(layers) * (points + 1), -1);

  Hull hull(points);
  std::vector<int64_t> before = sums.moment;  // Layer m - 1; without checkpoints everything runs from 0.
  std::vector<int64_t> now(points + 1);
  for (int32_t m = 0; m < layers; ++m) {
    int32_t* const choices = choices_.data() + static_cast<size_t>(m) * (points + 1);
    hull.Clear();
    now[0] = 0;
    for (int32_t j = 1; j <= points; ++j) {
      const int64_t drop = int64_t{depths_[j - 1]} - restore_tokens;
      if (drop > 0) hull.Add(sums.LineOf(j - 1, drop, before[j - 1]));
      const Line* const lowest = hull.Lowest(sums.weight[j]);
      now[j] = before[j];
      if (lowest == nullptr) continue;
      const int64_t cost = sums.moment[j] + lowest->At(sums.weight[j]);
      if (cost >= before[j]) continue;
      now[j] = cost;
      choices[j] = lowest->index;
    }
    costs_.push_back(now.back());
    std::swap(before, now);
  }
}

std::vector<int32_t> ChainDp::Positions(const int32_t places) const {
  Check(places >= 0 && places <= this->places(), "a layer that was computed", places);
  std::vector<int32_t> positions;
  auto j = static_cast<int32_t>(depths_.size());
  for (int32_t m = places; m > 0; --m) {
    const int32_t choice = choices_[static_cast<size_t>(m - 1) * (depths_.size() + 1) + j];
    if (choice < 0) continue;
    positions.push_back(depths_[choice]);
    j = choice;
  }
  std::reverse(positions.begin(), positions.end());
  return positions;
}

std::vector<int32_t> PlaceAtPrice(const DemandView demand, const int64_t price, const int32_t restore_tokens) {
  CheckDemand(demand);
  Check(price >= 0 && price <= kCostMax && restore_tokens >= 0, "a price within kCostMax", price, restore_tokens);
  const auto points = static_cast<int32_t>(demand.size());
  const RunningSums sums(demand);
  Hull hull(points);
  std::vector<int64_t> best(points + 1);
  std::vector<int32_t> choices(points + 1, -1);
  for (int32_t j = 1; j <= points; ++j) {
    const int64_t drop = int64_t{demand[j - 1].depth} - restore_tokens;
    if (drop > 0) hull.Add(sums.LineOf(j - 1, drop, best[j - 1] + price));
    const Line* const lowest = hull.Lowest(sums.weight[j]);
    best[j] = sums.moment[j];
    if (lowest == nullptr) continue;
    const int64_t cost = sums.moment[j] + lowest->At(sums.weight[j]);
    if (cost >= best[j]) continue;
    best[j] = cost;
    choices[j] = lowest->index;
  }
  std::vector<int32_t> positions;
  for (int32_t j = points; choices[j] >= 0; j = choices[j]) positions.push_back(demand[choices[j]].depth);
  std::reverse(positions.begin(), positions.end());
  return positions;
}

}  // namespace invar::cache
