// SimulatedPeer: another instance as the engine sees it, a PrefixSource on simulated time: prefixes come after a drawn
// while, late, in part, or not at all, and also after they were cancelled. What it gives is computed by a model of its
// own: right bits, or a named fault.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/prefix_source.h"
#include "models/model.h"
#include "tools/sim/random.h"

namespace invar::sim {

struct PeerOptions {
  uint64_t seed = 0;
  TimeNs delay_min = 0;
  TimeNs delay_max = 0;
  // Of a hundred prefixes; the rest comes.
  int32_t fails = 0;
  int32_t never_comes = 0;
  int32_t comes_in_part = 0;
};

class SimulatedPeer final : public engine::PrefixSource {
 public:
  // Requires: `clock` outlives it.
  SimulatedPeer(const PeerOptions& options, const models::FingerprintOptions& model, const Clock& clock);

  void Fetch(int64_t ticket, engine::PrefixWant want, Done done) override;
  // It ends all the same, as it would where the cancel comes too late to be seen.
  void Cancel(int64_t) override {}
  // Ends what is due.
  void Work();

 private:
  struct Call {
    TimeNs due = 0;
    engine::FetchedPrefix fetched;
    Done done;
  };
  engine::FetchedPrefix Compute(const engine::PrefixWant& want);

  // Set at construction.
  const PeerOptions options_;
  const Clock& clock_;
  const std::unique_ptr<models::Model> model_;

  Random random_;
  std::vector<Call> calls_;
};

}  // namespace invar::sim
