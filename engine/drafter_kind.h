// DrafterKind: a way to guess tokens that an engine may be given (speculate/drafter.h has the interface).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"

namespace invar::engine {

class Drafter;
struct DrafterSetting;

struct DrafterKind {
  std::string name;
  std::function<std::unique_ptr<Drafter>(const DrafterSetting&)> make;
  // Why it cannot draft for such a model, for people; empty where it can. Absent: it always can.
  std::function<std::string(const models::ModelSpec&)> why_not = {};
  bool compresses = false;    // Drafts on a compressed view: its requests name a compressor.
  bool from_outside = false;  // Guesses come with the request (DraftOffers): callers cannot name it.
};
// registry.cc, in the order of its rows.
std::vector<DrafterKind> DrafterKinds();

}  // namespace invar::engine
