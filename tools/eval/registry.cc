// Name -> kind of task, one line each. Names up to `fwe` are RULER's.
#include <algorithm>
#include <array>

#include "tools/eval/kinds.h"

namespace invar::eval {
namespace {

constexpr std::array kKinds = {
    TaskKind{"niah_single_1", "a number in one repeated sentence", NiahNumberInRepeats},
    TaskKind{"niah_single_2", "a number in free text", NiahNumberInText},
    TaskKind{"niah_single_3", "a UUID in free text", NiahUuidInText, true},
    TaskKind{"niah_multikey_1", "one of four numbers in free text", NiahFourKeys},
    TaskKind{"niah_multikey_2", "a number among nothing but needles", NiahAllNeedles},
    TaskKind{"niah_multikey_3", "the UUID of a UUID among nothing but needles", NiahAllUuids, true},
    TaskKind{"niah_multivalue", "four numbers of one key", NiahFourValues},
    TaskKind{"niah_multiquery", "four numbers of four keys", NiahFourQueries},
    TaskKind{"vt", "all variables that have a value, over four hops", VariableTracking},
    TaskKind{"cwe", "the ten words that stand most often", CommonWords},
    TaskKind{"fwe", "the three most frequent of made-up words", FrequentWords},
    TaskKind{"key_value", "the word behind a word in a list", KeyValue},
    TaskKind{"counting", "how often an animal was seen", Counting},
    TaskKind{"tool_call", "a tool call in JSON with arguments out of the context", ToolCall},
};

}  // namespace

std::span<const TaskKind> TaskKinds() { return kKinds; }

const TaskKind* FindTaskKind(const std::string_view name) {
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const TaskKind& k) { return k.name == name; });
  return kind == kKinds.end() ? nullptr : &*kind;
}

}  // namespace invar::eval
