// Made traces with the shapes that the published ones lack, so that nothing is tuned to one trace.
#pragma once

#include <cstdint>

#include "tools/cache_sim/trace.h"

namespace invar::cache_sim {

// Long documents that many requests read, each up to some depth before it goes its own way: three in four near the end
// (as questions about a whole article), the others around five places (as questions about chapters). Documents of
// 16K to 64K tokens, some read far more than others; requests come at random, one in two seconds.
Trace SharedDocuments(uint64_t seed, int32_t requests);

// Agents: sessions that begin with one of four system prompts with tools and then only append, a tool's result of half
// to two thousand tokens a turn, seconds apart, up to 40 turns. Sessions start at random and many run at a time.
Trace AgentSessions(uint64_t seed, int32_t requests);

}  // namespace invar::cache_sim
