// See open_calls.h. One lock over a few numbers.
#include "server/open_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace invar::server {

int64_t TenantShare(const config::Config& config, const int64_t whole) {
  const std::vector<config::ApiToken>& tokens = config.auth.tokens;
  const bool several = std::ranges::any_of(tokens, [&](const auto& t) { return t.tenant != tokens[0].tenant; });
  if (!several) return whole;
  const int64_t percent = config.limits.tenant_share_percent;
  // In two parts, so that no size overflows.
  return std::max<int64_t>(1, whole / 100 * percent + whole % 100 * percent / 100);
}

void OpenCalls::Held::Add(const OpenCall& call, const int64_t sign) {
  calls += sign;
  generate_calls += call.kind == CallKind::kGenerate ? sign : 0;
  request_bytes += sign * call.request_bytes;
}

Status OpenCalls::Begins(const OpenCall& call, const config::Config& config) {
  const int64_t bytes_max = config.limits.open_request_bytes_max;
  // What the engine holds of all tenants is bounded by its own queue.
  const int64_t generate_max = TenantShare(config, config.engine.queue_max + config.engine.running_max);
  const MutexLock lock(mu_);
  Held& tenant = tenants_[call.tenant];
  const Held before = tenant;
  all_.Add(call, 1);
  tenant.Add(call, 1);
  if (before.request_bytes > 0 && all_.request_bytes > bytes_max) {
    return ResourceExhausted(fmt::format("the requests of all open calls hold {} bytes already; try again later",
                                         all_.request_bytes - call.request_bytes));
  }
  if (before.request_bytes > 0 && tenant.request_bytes > TenantShare(config, bytes_max)) {
    ++share_refusals_;
    return ResourceExhausted(fmt::format(
        "the requests of this tenant's open calls hold {} bytes already; try again later", before.request_bytes));
  }
  if (call.kind == CallKind::kGenerate && before.generate_calls > 0 && tenant.generate_calls > generate_max) {
    ++share_refusals_;
    return ResourceExhausted(
        fmt::format("this tenant has {} Generate calls open already; try again later", before.generate_calls));
  }
  return OkStatus();
}

void OpenCalls::Ends(const OpenCall& call) {
  // Under the lock, so that a waiter cannot miss it and the last call cannot outlive this.
  const MutexLock lock(mu_);
  const auto tenant = tenants_.find(call.tenant);
  Check(tenant != tenants_.end(), "a call ends once", call.tenant);
  tenant->second.Add(call, -1);
  if (tenant->second.calls == 0) tenants_.erase(tenant);
  all_.Add(call, -1);
  idle_.NotifyAll();
}

bool OpenCalls::WaitIdle(const std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  const MutexLock lock(mu_);
  while (all_.calls > 0) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    idle_.WaitFor(mu_, left);
  }
  return true;
}

int64_t OpenCalls::generate_calls() const {
  const MutexLock lock(mu_);
  return all_.generate_calls;
}

int64_t OpenCalls::request_bytes() const {
  const MutexLock lock(mu_);
  return all_.request_bytes;
}

int64_t OpenCalls::share_refusals() const {
  const MutexLock lock(mu_);
  return share_refusals_;
}

}  // namespace invar::server
