// See open_calls.h. One lock over a few numbers. Messages name the limit in the configuration; it is no field of the
// request, so a status carries none, and the caller is told to try again.
#include "server/access/open_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
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

void OpenCalls::Held::Add(const Claim& claim, const int64_t sign) {
  calls[claim.rpc] += sign;
  bytes += sign * claim.bytes;
}

Status OpenCalls::JudgeBytes(const int64_t bytes, const int64_t held, const config::Config& config) {
  const int64_t bytes_max = config.limits.open_request_bytes_max;
  if (let_in_.bytes + bytes > bytes_max) {
    ++bytes_refusals_;
    return ResourceExhausted(
        fmt::format("limits.open_request_bytes_max: open calls hold {} bytes, {} more exceed {}; try again later",
                    let_in_.bytes, bytes, bytes_max));
  }
  if (const int64_t share = TenantShare(config, bytes_max); held + bytes > share) {
    ++share_refusals_;
    return ResourceExhausted(fmt::format(
        "limits.tenant_share_percent: open calls of this tenant hold {} bytes, {} more exceed its share of {}; try "
        "again later",
        held, bytes, share));
  }
  return OkStatus();
}

Status OpenCalls::JudgeCall(const Claim& claim, const config::Config& config) {
  const auto found = tenants_.find(claim.tenant);
  const Held tenant = found == tenants_.end() ? Held() : found->second;
  if (tenant.bytes > 0) {
    if (Status s = JudgeBytes(claim.bytes, tenant.bytes, config); !s.ok()) return s;
  }
  // What the engine holds of all tenants is bounded by its own queue.
  const int64_t held_max = config.engine.queue_max + config.engine.running_max;
  const int64_t generate_max = TenantShare(config, held_max);
  const int64_t generate_calls = tenant.calls[Rpc::kGenerate];
  if (claim.rpc == Rpc::kGenerate && generate_calls > 0 && generate_calls >= generate_max) {
    if (generate_max == held_max) {
      ++queue_refusals_;
      return ResourceExhausted(fmt::format(
          "engine.queue_max: {} Generate calls are open, as many as may wait beside engine.running_max {}; try again "
          "later, or raise engine.queue_max",
          generate_calls, config.engine.running_max));
    }
    ++share_refusals_;
    return ResourceExhausted(fmt::format(
        "limits.tenant_share_percent: this tenant has {} Generate calls open, its share is {}; try again later",
        generate_calls, generate_max));
  }
  return OkStatus();
}

OpenCall OpenCalls::Begin(Claim claim, const Status& so_far, const config::Config& config) {
  const MutexLock lock(mu_);
  Status status = so_far.ok() ? JudgeCall(claim, config) : so_far;
  if (status.ok()) {
    let_in_.Add(claim, 1);
    tenants_[claim.tenant].Add(claim, 1);
    return OpenCall(*this, std::move(claim), std::move(status), /*must_reset=*/false);
  }
  // One alone has its status, however large.
  const bool must_reset = refused_.bytes > 0 && refused_.bytes + claim.bytes > config.limits.refused_request_bytes_max;
  resets_ += must_reset ? 1 : 0;
  refused_.Add(claim, 1);
  return OpenCall(*this, std::move(claim), std::move(status), must_reset);
}

Status OpenCalls::Grow(Claim& claim, const int64_t bytes, const config::Config& config) {
  const MutexLock lock(mu_);
  const auto tenant = tenants_.find(claim.tenant);
  Check(tenant != tenants_.end(), "a call that grows was let in", claim.tenant);
  if (tenant->second.bytes > claim.bytes) {
    if (Status s = JudgeBytes(bytes, tenant->second.bytes, config); !s.ok()) return s;
  }
  claim.bytes += bytes;
  let_in_.bytes += bytes;
  tenant->second.bytes += bytes;
  return OkStatus();
}

void OpenCalls::End(const Claim& claim, const bool let_in) {
  // Under the lock, so that a waiter cannot miss it and the last call cannot outlive this.
  const MutexLock lock(mu_);
  if (let_in) {
    const auto tenant = tenants_.find(claim.tenant);
    Check(tenant != tenants_.end(), "a call ends once", claim.tenant);
    tenant->second.Add(claim, -1);
    if (tenant->second.calls.total() == 0) tenants_.erase(tenant);
  }
  (let_in ? let_in_ : refused_).Add(claim, -1);
  idle_.NotifyAll();
}

bool OpenCalls::WaitIdle(const std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  const MutexLock lock(mu_);
  while (let_in_.calls.total() + refused_.calls.total() > 0) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    idle_.WaitFor(mu_, left);
  }
  return true;
}

OpenCalls::Report OpenCalls::report() const {
  const MutexLock lock(mu_);
  Report report{.calls = let_in_.calls,
                .bytes = let_in_.bytes,
                .refused_bytes = refused_.bytes,
                .bytes_refusals = bytes_refusals_,
                .queue_refusals = queue_refusals_,
                .share_refusals = share_refusals_,
                .resets = resets_};
  for (size_t rpc = 0; rpc < kRpcCount; ++rpc) report.calls.of[rpc] += refused_.calls.of[rpc];
  return report;
}

}  // namespace invar::server
