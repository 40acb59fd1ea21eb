// See scd_profiles.h.
#include "engine/scd_profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/transfer/scd_profile_file.h"

namespace invar::engine {
namespace {

Status Named(const std::string& path, const Status& status) {
  return Status(status.code(), fmt::format("transfer.profile: {}: {}", path, status.message()), "transfer.profile");
}

StatusOr<HeldProfile> LoadOne(const std::string& path, const models::ModelSpec& spec, const ScdSide& here) {
  StatusOr<NamedScd> file = LoadNamedScd(path);
  if (!file.ok())
    return Status(file.status().code(), "transfer.profile: " + file.status().message(), "transfer.profile");
  HeldProfile held{.path = path, .digest = std::move(file->digest), .profile = std::move(file->profile)};
  const Status producer = CheckScdSide("producer", held.profile.producer, here);
  const Status consumer = CheckScdSide("consumer", held.profile.consumer, here);
  held.sends = producer.ok();
  held.takes = consumer.ok();
  if (!held.sends && !held.takes) {
    // What is said of the side whose weights are served here is what can be mended.
    if (held.profile.consumer.fingerprint == here.fingerprint) return Named(path, consumer);
    if (held.profile.producer.fingerprint == here.fingerprint) return Named(path, producer);
    return Named(path, FailedPrecondition(fmt::format("is of other models: fingerprint: wanted {} (producer) or {} "
                                                      "(consumer), found {}",
                                                      held.profile.producer.fingerprint,
                                                      held.profile.consumer.fingerprint, here.fingerprint)));
  }
  if (held.profile.shape != ScdShapeOf(spec)) {
    return Named(path, FailedPrecondition("is of layers of other shapes than the model's that is served"));
  }
  return held;
}

}  // namespace

size_t HeldProfile::FindPoint(const std::string_view name) const {
  const auto found = std::ranges::find(profile.points, name, &ScdPoint::name);
  return static_cast<size_t>(found - profile.points.begin());
}

std::string ProvenanceOf(const HeldProfile& held, const size_t point) {
  return fmt::format("scd {} {}", held.digest, held.profile.points[point].name);
}

StatusOr<ScdProfiles> ScdProfiles::Load(std::string_view paths, const models::ModelSpec& spec,
                                        const std::string& tokenizer) {
  ScdProfiles profiles;
  if (paths.empty()) return profiles;
  if (const std::string why = WhyNoScd(spec); !why.empty()) return Unimplemented("transfer.profile: " + why);
  const ScdSide here = ScdSideWith(spec, tokenizer);
  while (!paths.empty()) {
    const size_t comma = std::min(paths.find(','), paths.size());
    std::string_view path = paths.substr(0, comma);
    paths.remove_prefix(std::min(comma + 1, paths.size()));
    while (path.starts_with(' ')) path.remove_prefix(1);
    while (path.ends_with(' ')) path.remove_suffix(1);
    if (path.empty()) continue;
    StatusOr<HeldProfile> loaded = LoadOne(std::string(path), spec, here);
    if (!loaded.ok()) return loaded.status();
    const auto held = std::make_shared<const HeldProfile>(*std::move(loaded));
    if (held->sends) profiles.sends_.push_back(held);
    if (!held->takes) continue;
    if (profiles.takes_ != nullptr) {
      return InvalidArgument(fmt::format("transfer.profile: {} and {} both make this instance a consumer: give one",
                                         profiles.takes_->path, held->path),
                             "transfer.profile");
    }
    profiles.takes_ = held;
  }
  return profiles;
}

std::shared_ptr<const HeldProfile> ScdProfiles::ToSend(const std::string_view digest) const {
  const auto found =
      std::ranges::find_if(sends_, [&](const auto& held) { return std::string_view(held->digest) == digest; });
  return found == sends_.end() ? nullptr : *found;
}

std::string ScdProfiles::DigestsToSend() const {
  std::string digests;
  for (const auto& held : sends_) digests += (digests.empty() ? "" : ", ") + held->digest;
  return digests;
}

}  // namespace invar::engine
