// The page /cache of the ops port: the prefix tree's shape, checkpoints, budgets, tiers and price, as HTML that
// refreshes itself. It holds sizes, depths, uses and names of tenants; no text, no tokens, no salts. Everything is in
// the one answer: no script, nothing loaded from elsewhere. Threads: any; pure.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"

namespace invar::server {

// `text` with what HTML gives a meaning to written as entities.
std::string EscapeHtml(std::string_view text);

// Bounded: about 200 KB. `snapshot` may be null: there is none yet. `model`: its name.
std::string CachePage(std::string_view model, const engine::CacheSnapshot* snapshot, double age_seconds);

}  // namespace invar::server
