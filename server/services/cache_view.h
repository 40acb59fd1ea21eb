// CacheView: the last snapshots of the cache, shared by all who look at it: one of all tenants, and of each tenant that
// is looked at by itself one of its own, so that what is shown of it does not depend on the others. The engine makes
// one when somebody asks and the last one is older than a second, never two of the same at once: however many look, it
// walks each tenant's trees twice a second at most.
// Threads: any.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"

namespace invar::server {

class CacheView {
 public:
  static constexpr TimeNs kAgeMax = 1'000'000'000;

  // Requires: `clock` is the engine's and outlives this.
  explicit CacheView(const Clock& clock);
  ~CacheView();
  CacheView(const CacheView&) = delete;
  CacheView& operator=(const CacheView&) = delete;

  // The last snapshot of all, old as it is; null: there is none yet. Never waits: where it is too old, a new one is
  // asked for.
  std::shared_ptr<const engine::CacheSnapshot> Latest(engine::Engine& engine);
  // A snapshot of `tenant` (none: of all) that is fresh enough. Waits for the engine's next step boundary.
  // Errors: UNAVAILABLE (the engine has stopped), DEADLINE_EXCEEDED (no boundary in time).
  StatusOr<std::shared_ptr<const engine::CacheSnapshot>> Fresh(engine::Engine& engine,
                                                               const std::optional<std::string>& tenant,
                                                               std::chrono::milliseconds timeout);
  // The next to look gets a new one: the cache has been changed by hand.
  void Invalidate();
  double AgeSeconds(const engine::CacheSnapshot& snapshot) const { return ToSeconds(clock_.Now() - snapshot.at); }

 private:
  struct Shared;

  Status AskIfOld(engine::Engine& engine, const std::optional<std::string>& tenant);

  const Clock& clock_;
  const std::shared_ptr<Shared> shared_;  // With the engine, which may answer later.
};

// What an admin call says where the engine does not come to a step boundary in time.
Status EngineIsBusy(std::chrono::milliseconds waited);

}  // namespace invar::server
