// See byte_queue.h.
#include "engine/byte_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace invar::engine {

void ByteQueue::Put(std::vector<std::byte> buffer) {
  if (buffer.empty()) return;
  put_ += std::ssize(buffer);
  buffers_.push_back(std::move(buffer));
}

void ByteQueue::Take(const int64_t count, std::string& out) {
  Check(count >= 0 && count <= size(), "what is taken of a queue lies in it", count, size());
  taken_ += count;
  for (int64_t left = count; left > 0;) {
    const std::vector<std::byte>& first = buffers_.front();
    const int64_t take = std::min(left, std::ssize(first) - begin_);
    out.append(reinterpret_cast<const char*>(first.data() + begin_), static_cast<size_t>(take));
    left -= take;
    begin_ += take;
    if (begin_ < std::ssize(first)) continue;
    buffers_.pop_front();
    begin_ = 0;
  }
}

int64_t ByteQueue::memory_bytes() const {
  int64_t bytes = 0;
  for (const std::vector<std::byte>& buffer : buffers_) bytes += static_cast<int64_t>(buffer.capacity());
  return bytes;
}

}  // namespace invar::engine
