// The face: who may call from which thread, and the engine thread itself. What a step does is loop/step_loop.h.
#include "engine/engine.h"

#include <thread>
#include <utility>

#include "base/check.h"
#include "cache/tree_walk.h"
#include "engine/compressed/compressed_kv.h"
#include "engine/loop/step_loop.h"

namespace invar::engine {
namespace {

// One part of a walk over the tree between two steps, and what goes on with it between the next two.
CacheJob GoOnWith(std::shared_ptr<cache::TreeWalk> walk, std::function<void(CacheSnapshot)> done, Inbox& inbox) {
  return [walk = std::move(walk), done = std::move(done), &inbox](cache::CacheManager& cache, const TimeNs now) {
    cache.Continue(*walk, cache::TreeWalk::kNodesAtOnce);
    while (!walk->is_done()) {
      if (inbox.Post(GoOnWith(walk, done, inbox)).ok()) return;
      // The engine has stopped: there is no next step, and nobody whom this holds up.
      cache.Continue(*walk, cache::TreeWalk::kNodesAtOnce);
    }
    done({.at = now, .report = cache.Report(), .tree = walk->Report(now)});
  };
}

}  // namespace

struct Engine::Impl {
  Impl(const EngineOptions& options, std::unique_ptr<models::Model> model, const models::Tokenizer* const tokenizer,
       const Clock& clock_in, const MemoryPlan& plan, std::vector<std::unique_ptr<cache::Tier>> tiers,
       std::unique_ptr<SlowStore> slow, PrefixSource* const prefixes)
      : clock(clock_in),
        loop(options, std::move(model), tokenizer, clock_in, plan, std::move(tiers), std::move(slow), prefixes) {}

  void ThreadMain() {
    while (!loop.inbox().stopped()) {
      if (!loop.RunOneStep()) loop.inbox().Wait(loop.NextWake());
    }
  }

  const Clock& clock;
  StepLoop loop;
  std::thread thread;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, std::unique_ptr<models::Model> model,
                                                 const models::Tokenizer* const tokenizer, const Clock& clock,
                                                 std::vector<std::unique_ptr<cache::Tier>> tiers,
                                                 PrefixSource* const prefixes) {
  if (options.max_batch_tokens < 1 || options.max_logits_rows < 1 || options.max_running < 1 ||
      options.prefill_chunk_tokens < 1 || options.max_queued < 1) {
    return InvalidArgument(
        "max_batch_tokens, max_logits_rows, max_running, prefill_chunk_tokens and max_queued must be "
        "at least 1");
  }
  StatusOr<MemoryPlan> plan = PlanMemory(model->spec(), options);
  if (!plan.ok()) return plan.status();
  std::unique_ptr<SlowStore> slow;
  if (!options.slow_tier.path.empty()) {
    StatusOr<std::unique_ptr<SlowStore>> opened = SlowStore::Open(options.slow_tier);
    if (!opened.ok()) return opened.status();
    slow = *std::move(opened);
  }
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(options, std::move(model), tokenizer, clock, *plan,
                                                                   std::move(tiers), std::move(slow), prefixes)));
}

Engine::~Engine() { Stop(); }

void Engine::Stop() {
  impl_->loop.inbox().Stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->loop.inbox().Abort();
  impl_->loop.RunOneStep();
}

cache::PersistReport Engine::Persist(const TimeNs limit, const std::stop_token& hurry) {
  Stop();
  return impl_->loop.cache().Persist(impl_->clock, impl_->clock.Now() + limit, hurry);
}

StatusOr<SequenceId> Engine::Submit(Request request, std::shared_ptr<EventSink> sink) {
  if (Status s = ValidateRequest(request, impl_->loop.request_limits()); !s.ok()) return s;
  const TimeNs now = impl_->clock.Now();
  if (now >= request.deadline) return DeadlinePassed();
  return impl_->loop.inbox().Submit(std::move(request), std::move(sink), now);
}

void Engine::Cancel(const SequenceId id) { impl_->loop.inbox().Cancel(id); }
void Engine::Unpause(const SequenceId id) { impl_->loop.inbox().Unpause(id); }

Status Engine::FlushCache(cache::FlushOptions what, std::function<void(const cache::FlushReport&)> done) {
  return impl_->loop.inbox().Post(
      [what = std::move(what), done = std::move(done)](cache::CacheManager& cache, TimeNs now) {
        const cache::FlushReport freed = cache.Flush(what, now);
        if (done) done(freed);
      });
}

Status Engine::ReportCache(cache::TreeReportOptions options, std::function<void(CacheSnapshot)> done) {
  return impl_->loop.inbox().Post(
      GoOnWith(std::make_shared<cache::TreeWalk>(std::move(options)), std::move(done), impl_->loop.inbox()));
}

Status Engine::CopyCached(CachedPrefix what, std::function<void(std::optional<cache::PrefixImage>)> done) {
  return impl_->loop.inbox().Post(
      [what = std::move(what), done = std::move(done)](cache::CacheManager& cache, const TimeNs now) {
        const cache::PrefixQuery query{
            .scope = what.scope, .tokens = what.tokens, .resume_limit = static_cast<int32_t>(what.tokens.size())};
        const bool has = cache.Lookup(query).state_tokens >= what.tokens_min;
        done(has ? cache.CopyCached(query, what.first_page, now) : std::nullopt);
      });
}

Status Engine::LookUpCached(CachedPrefix what, std::function<void(int32_t, int64_t)> done) {
  return impl_->loop.inbox().Post(
      [what = std::move(what), done = std::move(done)](const cache::CacheManager& cache, TimeNs) {
        const cache::PrefixQuery query{
            .scope = what.scope, .tokens = what.tokens, .resume_limit = static_cast<int32_t>(what.tokens.size())};
        done(cache.Lookup(query).state_tokens, cache.flushes(what.scope.tenant));
      });
}

Status Engine::ExplainPlan(Request request, std::function<void(const cache::PlanReport&)> done) {
  if (Status s = ValidateRequest(request, impl_->loop.request_limits()); !s.ok()) return s;
  return impl_->loop.inbox().Post(
      [impl = impl_.get(), request = std::move(request), done = std::move(done)](cache::CacheManager& cache, TimeNs) {
        const auto tokens = static_cast<int32_t>(request.prompt.size());
        done(cache.ExplainPlan(impl->loop.admission().QueryOf(request, {}, request.prompt, tokens, tokens - 1)));
      });
}

void Engine::StartThread() {
  Check(!impl_->thread.joinable(), "the engine thread is started once");
  impl_->thread = std::thread([impl = impl_.get()] { impl->ThreadMain(); });
}

bool Engine::RunOneStep() {
  Check(!impl_->thread.joinable(), "only one driver runs steps");
  return impl_->loop.RunOneStep();
}

void Engine::Abort() { impl_->loop.inbox().Abort(); }
EngineStats Engine::Stats() const { return impl_->loop.inbox().Stats(); }
const models::ModelSpec& Engine::spec() const { return impl_->loop.spec(); }
const std::string& Engine::why_nothing_is_reused() const { return impl_->loop.why_nothing_is_reused(); }
const std::vector<std::string>& Engine::drafters() const { return impl_->loop.request_limits().drafters; }
void Engine::CheckIntegrity() const { impl_->loop.CheckIntegrity(); }

const RequestLimits& Engine::request_limits() const { return impl_->loop.request_limits(); }

StatusOr<PrefixView> Engine::MakeView(const cache::PrefixImage& image, const WantedView& wish) const {
  const std::optional<kernels::PageShape>& shape = impl_->loop.view_shape();
  if (!shape.has_value()) return Status(StatusCode::kFailedPrecondition, WhyNoViews(spec()));
  return MakePrefixView(spec(), *shape, image, wish);
}

int32_t Engine::step_tokens() const { return impl_->loop.step_tokens(); }

}  // namespace invar::engine
