// Which instruction sets this machine runs, and the table of operations of each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/cpu/kernel_table.h"

namespace invar::kernels::cpu {

// Best first, ending with "scalar"; names of config/isa_names.h. AVX-512-BF16 is listed only where its pair product has
// passed the self-test, and first only where that product is fast. Threads: any; detected once.
std::vector<std::string> DetectedIsas();

// Empty `name`: the best. Errors: INVALID_ARGUMENT (unknown), FAILED_PRECONDITION (this machine lacks it).
StatusOr<const KernelTable*> ChooseTable(std::string_view name);

}  // namespace invar::kernels::cpu
