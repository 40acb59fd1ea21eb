// One window read by both models, as fitting wants it: a layer of both at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/transfer/scd_fit.h"
#include "tools/calibrate/party.h"
#include "tools/calibrate/windows.h"

namespace invar::calibrate {

class PairReader {
 public:
  // `by_mass`: tokens weigh by how much the consumer's suffix looks at them. Requires: both outlive this; each has a
  // sequence 0.
  PairReader(Party& producer, Party& consumer, const bool by_mass)
      : producer_(producer), consumer_(consumer), by_mass_(by_mass) {}

  // Effects: sequence 0 of both.
  void Read(const Window& window);
  // Layer `layer` of the last window. Valid until the next Read.
  engine::ScdPairedLayer Layer(size_t layer) const;

 private:
  std::vector<float> WeightsOf(int32_t attention_layer, const QueryTap& queries) const;

  Party& producer_;
  Party& consumer_;
  const bool by_mass_;
  int64_t tokens_ = 0;
  std::vector<LayerTap> taps_;               // The producer's, the consumer's.
  std::vector<float> even_;                  // Ones.
  std::vector<std::vector<float>> weights_;  // Of each attention layer's tokens.
  std::vector<std::byte> state_;             // The consumer's after the prefix.
};

}  // namespace invar::calibrate
