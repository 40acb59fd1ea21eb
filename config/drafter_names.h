// Who may draft tokens, by the names of the API. The one list, the default first: configuration and requests take
// these; what this build has of them stands in engine/speculate/registry.cc.
#pragma once

#include <array>
#include <string_view>

namespace invar {

inline constexpr std::array<std::string_view, 4> kDrafterNames = {"compressed_kv", "ngram", "mtp",
                                                                  "ngram+compressed_kv"};

}  // namespace invar
