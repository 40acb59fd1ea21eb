// See run_call.h.
#include "server/peers/run_call.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "base/log.h"
#include "server/wire/translate_verify.h"

namespace invar::server {

RunCall::RunCall(v1::TransferService::Stub& stub, std::shared_ptr<engine::RemoteRun> run, Options options,
                 const Clock& clock)
    : run_(std::move(run)), options_(std::move(options)), clock_(clock), heard_at_(clock.Now()) {
  context_.set_deadline(std::chrono::system_clock::now() +
                        std::chrono::nanoseconds(std::max<TimeNs>(0, options_.deadline - clock.Now())));
  if (!options_.authorization.empty()) context_.AddMetadata("authorization", options_.authorization);
  rpc_ = stub.VerifyPrefix(&context_);
  run_->SetSender([this] {
    const MutexLock lock(mu_);
    has_draft_ = true;
    changed_.NotifyAll();
  });
  writer_ = std::thread([this] { WriteUntilOver(); });
  reader_ = std::thread([this] { Read(); });
}

RunCall::~RunCall() {
  Cut();
  reader_.join();
}

bool RunCall::AwaitTokens() {
  const MutexLock lock(mu_);
  while (!has_tokens_ && !is_over_) changed_.Wait(mu_);
  return !is_over_;
}

void RunCall::Read() {
  v1::VerifyResponse message;
  while (rpc_->Read(&message)) {
    heard_at_ = clock_.Now();
    if (const Status s = Take(message); !s.ok()) {
      Logger("server")->warn("a run elsewhere is given up: {}", s.message());
      Cut();
    }
  }
  run_->SetSender({});
  {
    const MutexLock lock(mu_);
    is_over_ = true;
    changed_.NotifyAll();
  }
  writer_.join();
  rpc_->Finish();
}

Status RunCall::Take(const v1::VerifyResponse& message) {
  StatusOr<engine::RunProducerFrame> frame = ToFrame(message);
  if (!frame.ok()) return frame.status();
  auto* const verified = std::get_if<engine::VerifiedFrame>(&*frame);
  if (verified == nullptr) return OkStatus();
  if (Status s = run_->Take(std::move(*verified)); !s.ok()) return s;
  const MutexLock lock(mu_);
  has_tokens_ = true;
  changed_.NotifyAll();
  return OkStatus();
}

// Alone writes. Where that fails, so does the next Read.
void RunCall::WriteUntilOver() {
  engine::VerifyOpenFrame open = run_->open();
  open.identity = options_.identity;
  rpc_->Write(ToMessage(engine::RunConsumerFrame(std::move(open)),
                        {.request_id = options_.request_id,
                         .timeout_ms = std::max<TimeNs>(1, (options_.deadline - clock_.Now()) / 1'000'000)}));
  for (;;) {
    {
      const MutexLock lock(mu_);
      if (!is_over_ && !has_draft_) changed_.WaitFor(mu_, std::chrono::nanoseconds(engine::kTransferBeatNs));
      if (is_over_) return;
      has_draft_ = false;
    }
    if (std::optional<engine::DraftFrame> draft = run_->NextDraft(); draft.has_value()) {
      rpc_->Write(ToMessage(engine::RunConsumerFrame(*std::move(draft))));
    } else {
      rpc_->Write(ToMessage(engine::RunConsumerFrame(engine::HeartbeatFrame{})));
    }
  }
}

}  // namespace invar::server
