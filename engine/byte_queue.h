// ByteQueue: bytes that are given out in the order in which they came. It keeps the buffers that it is given and lets
// go of each one with its last byte, so what it holds lies in memory once. Threads: its owner's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace invar::engine {

class ByteQueue {
 public:
  void Put(std::vector<std::byte> buffer);
  // Appends the next `count` bytes to `out`. Requires: 0 <= count <= size().
  void Take(int64_t count, std::string& out);

  int64_t size() const { return put_ - taken_; }
  // Ever.
  int64_t put() const { return put_; }
  int64_t taken() const { return taken_; }
  // Of the buffers.
  int64_t memory_bytes() const;

 private:
  std::deque<std::vector<std::byte>> buffers_;  // None is empty.
  int64_t begin_ = 0;                           // In the first of them.
  int64_t put_ = 0;
  int64_t taken_ = 0;
};

}  // namespace invar::engine
