// From names of tasks to what a model reads: composed as long as asked for, and laid into the model's frame.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/text.h"
#include "tools/eval/noise_text.h"
#include "tools/eval/prompt.h"
#include "tools/eval/task.h"

namespace invar::eval {

// Tokens that an answer may have beyond the right one's, so that a wrong beginning may still come to it.
inline constexpr int32_t kAnswerSpareTokens = 16;

// What `--tasks` calls none of them.
inline constexpr std::string_view kNoTasks = "none";

struct LaidTask {
  size_t kind;  // Of those that were asked for.
  Task task;
  Prompt prompt;

  int64_t tokens() const {
    return std::ssize(prompt.context) + std::ssize(prompt.question) + std::ssize(prompt.gold) + kAnswerSpareTokens;
  }
};

// All there are where no names are given, none for kNoTasks alone. Errors: INVALID_ARGUMENT that says which there are.
StatusOr<std::vector<const TaskKind*>> KindsOf(std::span<const std::string> names);

struct TaskWishes {
  int32_t context_tokens;
  int32_t samples;  // Of every kind.
  uint64_t seed;
};

// Errors: those of FitTask and of the template. `chat` may be null.
StatusOr<std::vector<LaidTask>> LayTasks(const models::Tokenizer& tokenizer, const models::ChatTemplate* chat,
                                         const TaskWishes& wishes, const NoiseText& noise,
                                         std::span<const TaskKind* const> kinds);

}  // namespace invar::eval
