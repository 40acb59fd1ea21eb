// DeviceRowChooser: kernels/row_chooser.h by the kernels of choose_rows.cu. Rows go in groups whose working memory is
// bounded, however many there are and however large a vocabulary.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/staging_ring.h"
#include "kernels/row_chooser.h"

namespace invar::kernels::cuda {

class DeviceRowChooser final : public RowChooser {
 public:
  // Requires: references outlive this.
  DeviceRowChooser(Device& device, StagingRing& arguments)
      : device_(device), arguments_(arguments), scratch_(device), chosen_(device) {}

  void Choose(int64_t cols, int32_t usable_ids, std::span<const RowChoice> choices,
              std::span<ChosenRow> chosen) override;
  // Held between calls, besides the ring. Threads: any.
  int64_t scratch_bytes() const { return scratch_.bytes() + chosen_.bytes(); }

 private:
  void ChooseGroup(int64_t cols, int32_t usable_ids, std::span<const RowChoice> choices, std::span<ChosenRow> chosen);

  Device& device_;
  StagingRing& arguments_;
  DeviceBuffer scratch_;
  DeviceBuffer chosen_;
  std::vector<std::byte> back_;  // What comes back.
};

}  // namespace invar::kernels::cuda
