// A string that knows, for every byte, whether the template or a user wrote it. All string operations of the template
// language go through Append and Slice, so that origins survive cutting and joining; the renderer turns them into
// prompt pieces, and a control token spelt by a user stays text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "models/text.h"

namespace invar::models::jinja {

class OriginText {
 public:
  OriginText() = default;
  OriginText(std::string_view bytes, ControlTokens origin) { Append(bytes, origin); }

  void Append(std::string_view bytes, ControlTokens origin);
  void Append(const OriginText& other) { Append(other, 0, other.size()); }
  // Appends bytes [begin, end) of `other`. Requires: begin <= end <= other.size().
  void Append(const OriginText& other, size_t begin, size_t end);
  OriginText Slice(size_t begin, size_t end) const;
  // Origin of one byte. Requires: index < size().
  ControlTokens OriginAt(size_t index) const;

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Neighbouring bytes of one origin as pieces.
  std::vector<PromptPiece> Pieces() const;

 private:
  struct Run {
    size_t end;
    ControlTokens origin;
  };
  // Index of the run that holds byte `index`.
  size_t RunAt(size_t index) const;

  std::string bytes_;
  std::vector<Run> runs_;  // Ascending ends, neighbours differ, the last end is bytes_.size().
};

}  // namespace invar::models::jinja
