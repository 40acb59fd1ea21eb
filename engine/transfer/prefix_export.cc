// See prefix_export.h.
#include "engine/prefix_export.h"

#include <algorithm>
#include <utility>

#include "kernels/numerics.h"

namespace invar::engine {
namespace {

// A consumer runs so few tokens in less time than a request here waits for its turn.
constexpr int32_t kNearTokens = kernels::kPageTokens;

}  // namespace

bool IsLast(const PrefixPart& part) {
  if (const auto* const layers = std::get_if<PrefixLayers>(&part); layers != nullptr) return layers->is_last;
  if (const auto* const codes = std::get_if<PrefixCodes>(&part); codes != nullptr) return codes->is_last;
  return true;
}

std::shared_ptr<PrefixExport> PrefixExport::Begin(Engine& engine, Wanted wanted, Take take) {
  std::shared_ptr<PrefixExport> self(new PrefixExport(engine, std::move(wanted), std::move(take)));
  if (self->wanted_.coded.has_value()) {
    const Status posted = engine.LookUpCached({.scope = self->wanted_.scope, .tokens = self->wanted_.tokens},
                                              [self](int32_t, const int64_t flushes) { self->TakeShelved(flushes); });
    if (!posted.ok()) self->Give(posted);
    return self;
  }
  const Status posted =
      engine.CopyCached({.scope = self->wanted_.scope,
                         .tokens = self->wanted_.tokens,
                         .tokens_min = std::max(self->end_ - kNearTokens, self->wanted_.have_state + 1),
                         .first_page = self->first_page_},
                        [self](std::optional<cache::PrefixImage> image) { self->TakeCached(std::move(image)); });
  if (!posted.ok()) self->Give(posted);
  return self;
}

void PrefixExport::TakeCached(std::optional<cache::PrefixImage> image) {
  if (!image.has_value() && wanted_.only_cached) {
    return Give(Status(StatusCode::kNotFound, "the prefix is not in the cache"));
  }
  if (!image.has_value()) return Run();
  Give(PrefixPart(*std::move(image)));
}

void PrefixExport::TakeShelved(const int64_t flushes) {
  flushes_ = flushes;
  std::shared_ptr<const CodeShelf::Codes> codes;
  if (shelf_key_.has_value()) codes = wanted_.shelf->Find(*shelf_key_, flushes);
  if (codes == nullptr) return Run();
  Give(PrefixPart(ShelvedCodes{.end = end_, .codes = std::move(codes)}));
}

void PrefixExport::Run() {
  Request request;
  request.request_id = wanted_.request_id;
  request.tenant = wanted_.scope.tenant;
  request.prompt = std::move(wanted_.tokens);
  request.prompt_field = "tokens";
  request.deadline = wanted_.deadline;
  request.cache.salt = wanted_.scope.salt;
  if (wanted_.coded.has_value()) {
    request.live_export = *wanted_.coded;
    request.cache.bypass_read = true;
  } else {
    request.live_export = RawExport{.first_page = first_page_};
  }
  {
    const MutexLock lock(mu_);
    if (has_ended_) return;
  }
  const StatusOr<SequenceId> id = engine_.Submit(std::move(request), shared_from_this());
  if (!id.ok()) return Give(id.status());
  bool cancelled = false;
  {
    const MutexLock lock(mu_);
    running_ = *id;
    cancelled = has_ended_;
  }
  if (cancelled) engine_.Cancel(*id);
}

void PrefixExport::Cancel() {
  std::optional<SequenceId> running;
  {
    const MutexLock lock(mu_);
    has_ended_ = true;
    running = running_;
  }
  if (running.has_value()) engine_.Cancel(*running);
}

bool PrefixExport::Push(TokenEvent event) {
  if (auto* const more = std::get_if<PrefixLayersEvent>(&event); more != nullptr) {
    Give(PrefixPart(PrefixLayers{
        .first_page = first_page_, .end = end_, .piece_pages = more->piece_pages, .layers = std::move(more->parts)}));
  } else if (auto* const codes = std::get_if<PrefixCodesEvent>(&event); codes != nullptr) {
    if (shelf_key_.has_value()) {
      kept_.resize(wanted_.coded->held->profile.shape.layers.size());
      for (const CodedPart& more : codes->parts) {
        kept_[more.layer].insert(kept_[more.layer].end(), more.bytes.begin(), more.bytes.end());
      }
    }
    Give(PrefixPart(PrefixCodes{.end = end_, .codes = std::move(codes->parts)}));
  } else if (std::holds_alternative<FinishedEvent>(event)) {
    if (!kept_.empty()) wanted_.shelf->Put(*shelf_key_, flushes_, std::move(kept_));
    if (wanted_.coded.has_value()) {
      Give(PrefixPart(PrefixCodes{.end = end_, .is_last = true}));
    } else {
      Give(PrefixPart(PrefixLayers{.first_page = first_page_, .end = end_, .is_last = true}));
    }
  } else if (auto* const failed = std::get_if<FailedEvent>(&event); failed != nullptr) {
    Give(std::move(failed->status));
  }
  return true;
}

void PrefixExport::Give(StatusOr<PrefixPart> part) {
  {
    const MutexLock lock(mu_);
    if (has_ended_) return;
    has_ended_ = !part.ok() || IsLast(*part);
  }
  take_(std::move(part));
}

}  // namespace invar::engine
