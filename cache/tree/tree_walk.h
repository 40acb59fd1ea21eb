// Makes a TreeReport. Threads: engine thread only.
#pragma once

#include "base/clock.h"
#include "cache/tree/radix_tree.h"
#include "cache/tree_report.h"

namespace invar::cache {

// Cost: one walk over all nodes, about 100 ns a node, and n log n of those that are shown.
TreeReport ReportTree(const RadixTree& tree, const TreeReportOptions& options, TimeNs now);

}  // namespace invar::cache
