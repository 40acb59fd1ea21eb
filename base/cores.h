// The cores that this process may compute on.
#pragma once

#include <vector>

namespace invar {

// Those it may run on, ascending; empty where the system does not tell. Threads: any.
std::vector<int> AllowedCores();

// As many threads as may compute all the time: no more than allowed cores, nor than the quota of the control group
// gives. More would be stopped together at every period's end, in the middle of a step. At least 1. Threads: any.
int ComputeCores();

}  // namespace invar
