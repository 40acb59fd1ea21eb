// See cache_view.h. A number tells snapshots asked for before an Invalidate from those after it.
#include "server/cache_view.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/mutex.h"

namespace invar::server {

struct CacheView::Shared {
  Mutex mu;
  CondVar came;
  std::shared_ptr<const engine::CacheSnapshot> last GUARDED_BY(mu);  // Shared with those who read it.
  bool stale GUARDED_BY(mu) = true;                                  // Invalidated since.
  bool asked GUARDED_BY(mu) = false;
  int64_t changes GUARDED_BY(mu) = 0;  // Invalidate calls.
};

CacheView::CacheView(const Clock& clock) : clock_(clock), shared_(std::make_shared<Shared>()) {}
CacheView::~CacheView() = default;

Status CacheView::AskIfOld(engine::Engine& engine) {
  int64_t changes = 0;
  {
    const MutexLock lock(shared_->mu);
    if (shared_->asked) return OkStatus();
    if (!shared_->stale && clock_.Now() - shared_->last->at < kAgeMax) return OkStatus();
    shared_->asked = true;
    changes = shared_->changes;
  }
  const Status asked =
      engine.ReportCache({.nodes_max = kNodesMax}, [shared = shared_, changes](engine::CacheSnapshot snapshot) {
        auto last = std::make_shared<const engine::CacheSnapshot>(std::move(snapshot));
        const MutexLock lock(shared->mu);
        shared->last = std::move(last);
        shared->stale = shared->changes != changes;
        shared->asked = false;
        shared->came.NotifyAll();
      });
  if (!asked.ok()) {
    const MutexLock lock(shared_->mu);
    shared_->asked = false;
    shared_->came.NotifyAll();
  }
  return asked;
}

std::shared_ptr<const engine::CacheSnapshot> CacheView::Latest(engine::Engine& engine) {
  (void)AskIfOld(engine);  // An engine that has stopped has nothing newer.
  const MutexLock lock(shared_->mu);
  return shared_->last;
}

StatusOr<std::shared_ptr<const engine::CacheSnapshot>> CacheView::Fresh(engine::Engine& engine,
                                                                        const std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (Status s = AskIfOld(engine); !s.ok()) return s;
    const MutexLock lock(shared_->mu);
    // What comes now is new enough, also where a stopped clock calls it old.
    while (shared_->asked) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left <= left.zero()) return EngineIsBusy(timeout);
      shared_->came.WaitFor(shared_->mu, left);
    }
    if (!shared_->stale) return shared_->last;
  }
}

void CacheView::Invalidate() {
  const MutexLock lock(shared_->mu);
  shared_->stale = true;
  ++shared_->changes;
}

Status EngineIsBusy(const std::chrono::milliseconds waited) {
  return Status(StatusCode::kDeadlineExceeded,
                fmt::format("the engine has not ended a step within {:.1f} s; try again later",
                            std::chrono::duration<double>(waited).count()));
}

}  // namespace invar::server
