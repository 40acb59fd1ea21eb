// Tasks that say what a view of KV lost: a context, which is compressed, then a question and the answer that is right.
// After RULER (arXiv 2404.06654), with settings of its own for short contexts; free text comes from word lists or the
// user. A kind composes; fit_task.h makes it as long as wanted. A new kind is one file and one line in registry.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/eval/noise_text.h"

namespace invar::eval {

struct Task {
  std::string context = {};
  std::string question = {};
  std::string lead = {};  // Begin of the answer, given to the model.
  std::string gold = {};  // What a right answer goes on with: taught to the model for the likelihood of it.
  std::vector<std::string> expected = {};
  // Of the answer (lead and what was written), 0 to 1.
  double (*score)(const Task& task, std::string_view answer) = nullptr;
};

// What a task is composed from: the same composition gives the same task, more units a longer context.
struct Composition {
  uint64_t seed = 0;
  int32_t units = 0;  // Of noise: sentences, records or words, by kind.
  const NoiseText& noise;
};

struct TaskKind {
  std::string_view name;
  std::string_view summary;
  Task (*compose)(const Composition& composition);
  bool unlike_keys = false;  // Answers are like nothing else in the context (UUIDs): what merging may lose.
};

std::span<const TaskKind> TaskKinds();
// Null where there is none of that name.
const TaskKind* FindTaskKind(std::string_view name);

}  // namespace invar::eval
