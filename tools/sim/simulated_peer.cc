// See simulated_peer.h.
#include "tools/sim/simulated_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/state_shape.h"
#include "engine/transfer_protocol.h"

namespace invar::sim {

SimulatedPeer::SimulatedPeer(const PeerOptions& options, const models::FingerprintOptions& model, const Clock& clock)
    : options_(options), clock_(clock), model_(models::MakeFingerprintModel(model)), random_(options.seed) {}

void SimulatedPeer::Fetch(int64_t /*ticket*/, engine::PrefixWant want, Done done) {
  if (random_.Percent(options_.never_comes)) return;
  Call call{.due = clock_.Now() + options_.delay_min +
                   (options_.delay_max - options_.delay_min) * random_.Between(0, 100) / 100,
            .fetched = {},
            .done = std::move(done)};
  if (random_.Percent(options_.fails)) {
    call.fetched.fault = static_cast<engine::TransferFault>(random_.Between(0, engine::kTransferFaults - 1));
  } else {
    if (random_.Percent(options_.comes_in_part)) {
      want.tokens.resize(static_cast<size_t>(random_.Between(want.have_state + 1, std::ssize(want.tokens))));
    }
    call.fetched = Compute(want);
  }
  calls_.push_back(std::move(call));
}

void SimulatedPeer::Work() {
  std::vector<Call> due;
  std::erase_if(calls_, [&](Call& call) {
    if (call.due > clock_.Now()) return false;
    due.push_back(std::move(call));
    return true;
  });
  for (Call& call : due) call.done(std::move(call.fetched));
}

engine::FetchedPrefix SimulatedPeer::Compute(const engine::PrefixWant& want) {
  const models::ModelSpec& spec = model_->spec();
  const auto tokens = static_cast<int32_t>(want.tokens.size());
  const int32_t pages = cache::StateShape::PagesFor(tokens);
  std::vector<PageId> ids;
  for (int32_t page = 0; page < pages; ++page) ids.emplace_back(page);
  std::vector<std::byte> kv(static_cast<size_t>(pages * spec.page_bytes));
  engine::FetchedPrefix fetched;
  fetched.image = {.first_page = engine::FirstPageToSend(want.have_kv, tokens), .end = tokens};
  fetched.image.state.resize(static_cast<size_t>(spec.state_bytes));
  const models::ForwardSpan span{
      .tokens = want.tokens, .first = Position(0), .pages = ids, .state = SlotId(0), .logits_rows = 0};
  model_->Forward({.pages = kv.data(), .states = fetched.image.state.data()}, {&span, 1});
  for (int32_t page = fetched.image.first_page; page < pages; ++page) {
    const auto begin = kv.begin() + page * spec.page_bytes;
    fetched.image.pages.emplace_back(begin, begin + spec.page_bytes);
  }
  fetched.bytes = static_cast<int64_t>(fetched.image.pages.size()) * spec.page_bytes + spec.state_bytes;
  return fetched;
}

}  // namespace invar::sim
