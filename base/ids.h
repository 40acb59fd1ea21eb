// Strong integers: a Position never adds to a PageId. Raw integers live inside kernels only.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace invar {

template <typename Tag, typename Rep>
class StrongInt {
 public:
  using rep = Rep;
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(const Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const StrongInt&) const = default;

  friend std::ostream& operator<<(std::ostream& out, const StrongInt id) { return out << +id.value_; }

 private:
  Rep value_ = 0;
};

using TokenId = StrongInt<struct TokenIdTag, int32_t>;        // Index into the vocabulary.
using SequenceId = StrongInt<struct SequenceIdTag, int64_t>;  // One request inside the engine; never reused.
using LayerIndex = StrongInt<struct LayerIndexTag, int32_t>;
using PageId = StrongInt<struct PageIdTag, int32_t>;  // Index into the page arena.
using SlotId = StrongInt<struct SlotIdTag, int32_t>;  // Index into the recurrent-state arena.

// Place of a token in its sequence, from 0. The one id with arithmetic: distances are plain integers.
class Position : public StrongInt<struct PositionTag, int32_t> {
 public:
  using StrongInt::StrongInt;
  constexpr auto operator<=>(const Position&) const = default;
  friend constexpr Position operator+(const Position p, const int32_t n) { return Position(p.value() + n); }
  friend constexpr int32_t operator-(const Position a, const Position b) { return a.value() - b.value(); }
};

}  // namespace invar

template <typename Tag, typename Rep>
struct std::hash<invar::StrongInt<Tag, Rep>> {
  size_t operator()(const invar::StrongInt<Tag, Rep> id) const noexcept { return std::hash<Rep>()(id.value()); }
};
