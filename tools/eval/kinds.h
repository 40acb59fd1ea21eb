// Every kind of task that registry.cc names.
#pragma once

#include "tools/eval/task.h"

namespace invar::eval {

Task NiahNumberInRepeats(const Composition& composition);
Task NiahNumberInText(const Composition& composition);
Task NiahUuidInText(const Composition& composition);
Task NiahFourKeys(const Composition& composition);
Task NiahAllNeedles(const Composition& composition);
Task NiahAllUuids(const Composition& composition);
Task NiahFourValues(const Composition& composition);
Task NiahFourQueries(const Composition& composition);
Task VariableTracking(const Composition& composition);
Task CommonWords(const Composition& composition);
Task FrequentWords(const Composition& composition);
Task KeyValue(const Composition& composition);
Task Counting(const Composition& composition);
Task ToolCall(const Composition& composition);

}  // namespace invar::eval
