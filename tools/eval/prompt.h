// How a task stands before the model: in the frame of its chat template, cut where the compressed part ends.
//
//   | frame's head, context | question, frame's tail, lead | gold |
//     compressed              read exactly on the view       taught
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "models/text.h"
#include "tools/eval/task.h"

namespace invar::eval {

struct Prompt {
  std::vector<TokenId> context;
  std::vector<TokenId> question;
  std::vector<TokenId> gold;
};

class PromptFrame {
 public:
  // `chat` null: no frame, texts follow each other line by line. Errors: those of the template; INVALID_ARGUMENT where
  // it does not give back what a user said. Requires: `tokenizer` outlives this.
  static StatusOr<PromptFrame> Make(const models::Tokenizer& tokenizer, const models::ChatTemplate* chat);

  // Errors: as Tokenizer::Encode.
  StatusOr<Prompt> Lay(const Task& task) const;
  // Tokens of the compressed part.
  StatusOr<std::vector<TokenId>> Context(const std::string& context) const;

 private:
  explicit PromptFrame(const models::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  const models::Tokenizer* tokenizer_;
  bool framed_ = false;
  std::vector<models::PromptPiece> head_;
  std::vector<models::PromptPiece> tail_;
};

}  // namespace invar::eval
