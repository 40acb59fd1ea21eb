// The policies `invar cache-sim` compares: what ships, and how others behave.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "cache/cache_manager.h"

namespace invar::cache_sim {

// Options of the cache that behaves so; the sizes in them are the caller's to set. An unknown name: nullopt.
std::optional<cache::CacheOptions> OptionsOf(std::string_view policy);
// All names, the default first.
std::span<const std::string_view> PolicyNames();

}  // namespace invar::cache_sim
