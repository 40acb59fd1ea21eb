// See prompt.h.
#include "tools/eval/prompt.h"

namespace invar::eval {
namespace {

// What a user says to the template, to find where it puts that; no word of any template.
constexpr std::string_view kMark = "<<invar-eval>>";

}  // namespace

StatusOr<PromptFrame> PromptFrame::Make(const models::Tokenizer& tokenizer, const models::ChatTemplate* chat) {
  PromptFrame frame(tokenizer);
  if (chat == nullptr) return frame;
  models::ChatRequest request;
  models::ChatMessage message;
  message.role = "user";
  message.content = std::string(kMark);
  request.messages.push_back(std::move(message));
  StatusOr<std::vector<models::PromptPiece>> pieces = chat->Render(request, {});
  if (!pieces.ok()) return pieces.status();
  for (models::PromptPiece& piece : *pieces) {
    const size_t at = frame.framed_ ? std::string::npos : piece.text.find(kMark);
    if (at == std::string::npos) {
      (frame.framed_ ? frame.tail_ : frame.head_).push_back(std::move(piece));
      continue;
    }
    frame.framed_ = true;
    frame.head_.push_back({piece.text.substr(0, at), piece.control});
    frame.tail_.push_back({piece.text.substr(at + kMark.size()), piece.control});
  }
  if (!frame.framed_) {
    return InvalidArgument("the model's chat template changes what a user says; give --plain to go without it");
  }
  return frame;
}

StatusOr<std::vector<TokenId>> PromptFrame::Context(const std::string& context) const {
  if (!framed_) return tokenizer_->Encode(context, models::ControlTokens::kStayText, /*add_special=*/true, {});
  std::vector<models::PromptPiece> pieces = head_;
  pieces.push_back({context, models::ControlTokens::kStayText});
  return tokenizer_->EncodePieces(pieces, {});
}

StatusOr<Prompt> PromptFrame::Lay(const Task& task) const {
  StatusOr<std::vector<TokenId>> context = Context(task.context);
  if (!context.ok()) return context.status();
  std::vector<models::PromptPiece> pieces = {{task.question, models::ControlTokens::kStayText}};
  if (framed_) {
    pieces.insert(pieces.end(), tail_.begin(), tail_.end());
  } else {
    pieces.back().text += "\n";
  }
  pieces.push_back({task.lead, models::ControlTokens::kStayText});
  StatusOr<std::vector<TokenId>> question = tokenizer_->EncodePieces(pieces, {});
  if (!question.ok()) return question.status();
  StatusOr<std::vector<TokenId>> gold =
      tokenizer_->Encode(task.gold, models::ControlTokens::kStayText, /*add_special=*/false, {});
  if (!gold.ok()) return gold.status();
  return Prompt{*std::move(context), *std::move(question), *std::move(gold)};
}

}  // namespace invar::eval
