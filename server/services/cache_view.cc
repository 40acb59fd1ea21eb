// See cache_view.h. A number tells snapshots asked for before an Invalidate from those after it.
#include "server/services/cache_view.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "server/wire/translate_admin.h"

namespace invar::server {
namespace {

// Of all tenants, or of one.
struct View {
  std::shared_ptr<const engine::CacheSnapshot> last;  // Shared with those who read it.
  bool stale = true;                                  // Invalidated since.
  bool asked = false;

  bool IsFresh(const TimeNs now) const { return !stale && now - last->at < CacheView::kAgeMax; }
};

}  // namespace

struct CacheView::Shared {
  Mutex mu;
  CondVar came;
  std::map<std::optional<std::string>, View> views GUARDED_BY(mu);  // By tenant.
  int64_t changes GUARDED_BY(mu) = 0;                               // Invalidate calls.
};

CacheView::CacheView(const Clock& clock) : clock_(clock), shared_(std::make_shared<Shared>()) {}
CacheView::~CacheView() = default;

Status CacheView::AskIfOld(engine::Engine& engine, const std::optional<std::string>& tenant) {
  int64_t changes = 0;
  {
    const MutexLock lock(shared_->mu);
    const TimeNs now = clock_.Now();
    // Tenants that nobody looks at any more leave nothing behind.
    std::erase_if(shared_->views, [&](const auto& entry) {
      const auto& [of, view] = entry;
      return of.has_value() && of != tenant && !view.asked && !view.IsFresh(now);
    });
    View& view = shared_->views[tenant];
    if (view.asked || view.IsFresh(now)) return OkStatus();
    view.asked = true;
    changes = shared_->changes;
  }
  const Status asked =
      engine.ReportCache({.tenant = tenant, .nodes_max = kSnapshotNodesMax},
                         [shared = shared_, tenant, changes](engine::CacheSnapshot snapshot) {
                           auto last = std::make_shared<const engine::CacheSnapshot>(std::move(snapshot));
                           const MutexLock lock(shared->mu);
                           shared->views[tenant] = {.last = std::move(last), .stale = shared->changes != changes};
                           shared->came.NotifyAll();
                         });
  if (!asked.ok()) {
    const MutexLock lock(shared_->mu);
    shared_->views[tenant].asked = false;
    shared_->came.NotifyAll();
  }
  return asked;
}

std::shared_ptr<const engine::CacheSnapshot> CacheView::Latest(engine::Engine& engine) {
  (void)AskIfOld(engine, std::nullopt);  // An engine that has stopped has nothing newer.
  const MutexLock lock(shared_->mu);
  return shared_->views[std::nullopt].last;
}

StatusOr<std::shared_ptr<const engine::CacheSnapshot>> CacheView::Fresh(engine::Engine& engine,
                                                                        const std::optional<std::string>& tenant,
                                                                        const std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (Status s = AskIfOld(engine, tenant); !s.ok()) return s;
    const MutexLock lock(shared_->mu);
    // What comes now is new enough, also where a stopped clock calls it old.
    while (shared_->views[tenant].asked) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left <= left.zero()) return EngineIsBusy(timeout);
      shared_->came.WaitFor(shared_->mu, left);
    }
    if (const View& view = shared_->views[tenant]; !view.stale) return view.last;
  }
}

void CacheView::Invalidate() {
  const MutexLock lock(shared_->mu);
  for (auto& [tenant, view] : shared_->views) view.stale = true;
  ++shared_->changes;
}

Status EngineIsBusy(const std::chrono::milliseconds waited) {
  return Status(StatusCode::kDeadlineExceeded,
                fmt::format("the engine has not ended a step within {:.1f} s; try again later",
                            std::chrono::duration<double>(waited).count()));
}

}  // namespace invar::server
