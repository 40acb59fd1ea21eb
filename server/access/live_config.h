// LiveConfig: the configuration in force. Immutable snapshots, replaced whole by a reload: who starts something takes a
// snapshot and keeps to it.
// Threads: any.
#pragma once

#include <memory>
#include <utility>

#include "base/mutex.h"
#include "config/load.h"

namespace invar::server {

class LiveConfig {
 public:
  explicit LiveConfig(config::Loaded loaded) : loaded_(std::make_shared<const config::Loaded>(std::move(loaded))) {}

  // Shared: a call may outlive the reload that replaces its configuration.
  std::shared_ptr<const config::Loaded> loaded() const {
    MutexLock lock(mu_);
    return loaded_;
  }
  std::shared_ptr<const config::Config> config() const {
    std::shared_ptr<const config::Loaded> all = loaded();
    const config::Config* const part = &all->config;
    return {std::move(all), part};
  }
  void Replace(config::Loaded loaded) {
    auto next = std::make_shared<const config::Loaded>(std::move(loaded));
    MutexLock lock(mu_);
    loaded_ = std::move(next);
  }

 private:
  mutable Mutex mu_;
  std::shared_ptr<const config::Loaded> loaded_ GUARDED_BY(mu_);
};

}  // namespace invar::server
