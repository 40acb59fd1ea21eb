// See turn_queue.h. A list through the nodes themselves.
#include "server/threads/turn_queue.h"

#include <utility>

namespace invar::server {

TurnQueue::TurnQueue() : thread_([this] { Run(); }) {}

TurnQueue::~TurnQueue() {
  {
    const MutexLock lock(mu_);
    closed_ = true;
    ready_.NotifyAll();
  }
  thread_.join();
}

void TurnQueue::Ask(std::shared_ptr<Node> node) {
  // Notified under the lock: once the turn can run, its end may be what lets the owner of this queue go.
  const MutexLock lock(mu_);
  if (node->waiting_) return;
  node->waiting_ = true;
  Node* const added = node.get();
  (last_ != nullptr ? last_->next_ : first_) = std::move(node);
  last_ = added;
  ready_.NotifyOne();
}

void TurnQueue::Run() {
  for (;;) {
    std::shared_ptr<Node> node;
    {
      const MutexLock lock(mu_);
      while (first_ == nullptr && !closed_) ready_.Wait(mu_);
      if (first_ == nullptr) return;
      node = std::move(first_);
      first_ = std::move(node->next_);
      if (first_ == nullptr) last_ = nullptr;
      // Before the turn: what is asked for during it gets one more.
      node->waiting_ = false;
    }
    node->TakeTurn();
  }
}

}  // namespace invar::server
