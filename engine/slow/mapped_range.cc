// The system calls of mapped_range.h.
#include "engine/slow/mapped_range.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/slow/block_buffer.h"

namespace invar::engine {
MappedRange::MappedRange(const int64_t bytes) {
  if (bytes <= 0) return;
  void* const at = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                          /*fd=*/-1, /*offset=*/0);
  if (at == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(at);
  bytes_ = bytes;
}

MappedRange::~MappedRange() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
}

MappedRange::MappedRange(MappedRange&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedRange& MappedRange::operator=(MappedRange&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

bool MappedRange::IsInMemory(const std::byte* const at, const int64_t bytes) const {
  std::array<unsigned char, 1024> resident;
  constexpr int64_t kAtOnce = static_cast<int64_t>(resident.size()) * kBlockBytes;
  for (int64_t done = 0; done < bytes; done += kAtOnce) {
    const int64_t count = std::min(kAtOnce, bytes - done);
    void* const from = const_cast<std::byte*>(at) + done;
    if (::mincore(from, static_cast<size_t>(count), resident.data()) != 0) return false;
    const auto blocks = static_cast<size_t>(WholeBlocks(count) / kBlockBytes);
    for (size_t i = 0; i < blocks; ++i) {
      if ((resident[i] & 1) == 0) return false;
    }
  }
  return true;
}

}  // namespace invar::engine
