// Small arrays of one launch, laid out on the host and sent to the device in one copy: spans, page tables, tasks.
// Arrays that point at each other need to know where they will lie, so places are given out first.
//   Upload upload(ring);  const auto ids = upload.Space<int32_t>(n);  upload.Place();  upload.at(ids)[0] = ...;
//   upload.Send(device);  launch(upload.there(ids))
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/cuda/staging_ring.h"

namespace invar::kernels::cuda {

class Upload {
 public:
  template <typename T>
  struct Array {
    int64_t offset = 0;
    int64_t count = 0;
  };

  explicit Upload(StagingRing& ring) : ring_(ring) {}

  template <typename T>
  Array<T> Space(const int64_t count) {
    const Array<T> array{bytes_, count};
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    return array;
  }
  template <typename T>
  Array<T> SpaceFor(const std::span<const T> values) {
    return Space<T>(static_cast<int64_t>(values.size()));
  }
  void Place() {
    room_ = ring_.Take(bytes_);
    std::memset(room_.here, 0, static_cast<size_t>(bytes_));
  }
  // On the host; requires Place.
  template <typename T>
  T* at(const Array<T>& array) {
    return reinterpret_cast<T*>(room_.here + array.offset);
  }
  template <typename T>
  void Fill(const Array<T>& array, const std::span<const T> values) {
    if (!values.empty()) std::memcpy(at(array), values.data(), values.size_bytes());
  }
  // Where the device will find it; requires Place.
  template <typename T>
  const T* there(const Array<T>& array) const {
    return reinterpret_cast<const T*>(room_.there + array.offset);
  }
  void Send(Device& device) {
    if (bytes_ > 0) device.CopyIn(room_.there, room_.here, bytes_);
  }

 private:
  StagingRing& ring_;
  int64_t bytes_ = 0;
  StagingRing::Room room_;
};

}  // namespace invar::kernels::cuda
