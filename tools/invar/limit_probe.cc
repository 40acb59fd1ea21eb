// See limit_probe.h.
#include "tools/invar/limit_probe.h"

namespace invar::tools {

LimitProbe::LimitProbe(kernels::Backend& backend) : backend_(backend) {
  if (!backend.rows_are_apart()) cores_.emplace(backend.pool().threads(), std::string(backend.isa()).c_str());
}

Status LimitProbe::Measure() {
  if (!cores_.has_value()) return MeasureDevice();
  cores_->Measure();
  return OkStatus();
}

Status LimitProbe::MeasureRead(const int64_t run_bytes) {
  if (!cores_.has_value()) return MeasureDevice();
  cores_->MeasureRead(run_bytes);
  return OkStatus();
}

Status LimitProbe::MeasureUpdate() {
  if (!cores_.has_value()) return MeasureDevice();
  cores_->MeasureUpdate();
  return OkStatus();
}

Status LimitProbe::MeasurePeak() {
  if (!cores_.has_value()) return MeasureDevice();
  cores_->MeasurePeak();
  return OkStatus();
}

kernels::MachineLimits LimitProbe::limits() const {
  return cores_.has_value() ? cores_->limits() : device_.value_or(kernels::MachineLimits{});
}

Status LimitProbe::MeasureDevice() {
  if (device_.has_value()) return OkStatus();
  std::optional<StatusOr<kernels::MachineLimits>> measured = backend_.MeasureLimits();
  Check(measured.has_value(), "a backend whose rows are apart measures its device");
  if (!measured->ok()) return measured->status();
  device_ = **measured;
  return OkStatus();
}

}  // namespace invar::tools
