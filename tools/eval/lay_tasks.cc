// See lay_tasks.h.
#include "tools/eval/lay_tasks.h"

#include "base/split_mix64.h"
#include "tools/eval/fit_task.h"

namespace invar::eval {

StatusOr<std::vector<const TaskKind*>> KindsOf(const std::span<const std::string> names) {
  std::vector<const TaskKind*> kinds;
  if (names.size() == 1 && names.front() == kNoTasks) return kinds;
  for (const std::string& name : names) {
    const TaskKind* kind = FindTaskKind(name);
    if (kind == nullptr) {
      std::string message = "--tasks: there is no task \"" + name + "\"; there are:";
      for (const TaskKind& known : TaskKinds()) message += " " + std::string(known.name);
      return InvalidArgument(message);
    }
    kinds.push_back(kind);
  }
  if (names.empty())
    for (const TaskKind& kind : TaskKinds()) kinds.push_back(&kind);
  return kinds;
}

StatusOr<std::vector<LaidTask>> LayTasks(const models::Tokenizer& tokenizer, const models::ChatTemplate* const chat,
                                         const TaskWishes& wishes, const NoiseText& noise,
                                         const std::span<const TaskKind* const> kinds) {
  StatusOr<PromptFrame> frame = PromptFrame::Make(tokenizer, chat);
  if (!frame.ok()) return frame.status();
  const TaskSize size{.tokens = wishes.context_tokens, .count = [&](const std::string& text) -> StatusOr<int64_t> {
                        StatusOr<std::vector<TokenId>> tokens = frame->Context(text);
                        if (!tokens.ok()) return tokens.status();
                        return std::ssize(*tokens);
                      }};
  std::vector<LaidTask> laid;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (int32_t sample = 0; sample < wishes.samples; ++sample) {
      StatusOr<Task> task = FitTask(*kinds[kind], MixBits(wishes.seed) + sample, noise, size);
      if (!task.ok()) return task.status();
      StatusOr<Prompt> prompt = frame->Lay(*task);
      if (!prompt.ok()) return prompt.status();
      laid.push_back({kind, *std::move(task), *std::move(prompt)});
    }
  }
  return laid;
}

}  // namespace invar::eval
