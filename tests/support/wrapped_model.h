// WrappedModel: another model, as it is; a test's own overrides what it changes or notes. It names no backend, so that
// the host reads its logits.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "models/model.h"

namespace invar::testing {

class WrappedModel : public models::Model {
 public:
  explicit WrappedModel(std::unique_ptr<models::Model> model) : model_(std::move(model)) {}
  const models::ModelSpec& spec() const override { return model_->spec(); }
  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) override {
    return model_->Forward(memory, spans);
  }
  kernels::ConstF32View Guess(const models::SequenceMemory& memory,
                              const std::span<const models::GuessRow> rows) override {
    return model_->Guess(memory, rows);
  }
  void Advance(const models::SequenceMemory& memory, const std::span<const models::StateAdvance> advances) override {
    model_->Advance(memory, advances);
  }

 protected:
  const std::unique_ptr<models::Model> model_;
};

}  // namespace invar::testing
