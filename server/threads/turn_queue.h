// One thread that gives a turn to everybody who asks for one, in order. A node waits at most once, in memory of its
// own: however many ask at once, nothing overflows and nothing is allocated.
//   Ask (not waiting) -> waiting -> Turn ... Ask during a turn: one more turn after it
#pragma once

#include <memory>
#include <thread>

#include "base/mutex.h"

namespace invar::server {

class TurnQueue {
 public:
  class Node {
   public:
    virtual ~Node() = default;

   protected:
    // What there is to do now, all of it. On the queue's thread.
    virtual void TakeTurn() = 0;

   private:
    friend class TurnQueue;
    // Guarded by the queue's lock.
    std::shared_ptr<Node> next_;  // The queue is what keeps it alive while it waits.
    bool waiting_ = false;
  };

  TurnQueue();
  // Gives the turns that were asked for, then joins.
  ~TurnQueue();
  TurnQueue(const TurnQueue&) = delete;
  TurnQueue& operator=(const TurnQueue&) = delete;

  // Gives `node` a turn that begins after this call. Nothing where one waits already. Threads: any.
  void Ask(std::shared_ptr<Node> node);

 private:
  void Run();

  Mutex mu_;
  CondVar ready_;
  std::shared_ptr<Node> first_ GUARDED_BY(mu_);
  Node* last_ GUARDED_BY(mu_) = nullptr;  // Null: nobody waits.
  bool closed_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses all above.
};

}  // namespace invar::server
