// Detects once. The self-test compares the bf16 product of AVX-512 with fused multiply-adds on adversarial and random
// values: on a CPU whose instruction adds in another order, the AVX2 build (same definition) runs instead.
#include "kernels/cpu/isa.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/worker_pool.h"
#include "kernels/cpu/cpu_features.h"

namespace invar::kernels::cpu {
namespace {

// Words whose bf16 halves cover all exponents, signs, zeros and denormals.
std::vector<uint16_t> TestValues(const size_t count, uint32_t seed) {
  std::vector<uint16_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    const uint32_t exponent = i % 3 == 0 ? (seed >> 9) % 254 : 120 + (seed >> 9) % 14;  // Wide or near one.
    values[i] = static_cast<uint16_t>((seed >> 16 & 0x807fU) | exponent << 7);
  }
  return values;
}

// One panel of 64 outputs, 512 inputs, 6 rows, through both tables.
bool SameProduct(const KernelTable& tested, const KernelTable& trusted, const uint32_t seed) {
  constexpr int64_t kK = 512;
  constexpr int64_t kRows = 6;
  const FlushDenormals flush;
  const std::vector<uint16_t> panel = TestValues(kK * kPanelColumns, seed);
  const std::vector<uint16_t> rows = TestValues(kRows * kK, seed + 1);
  const auto run = [&](const KernelTable& table) {
    std::vector<float> a(kRows * kK);  // Room for either form.
    const int64_t bytes = table.expands ? 4 : 2;
    for (int64_t r = 0; r < kRows; ++r) {
      table.copy_row(rows.data() + r * kK, kK, true, reinterpret_cast<std::byte*>(a.data()) + r * kK * bytes);
    }
    std::vector<float> out(kRows * kPanelColumns);
    table.panel_product({.a = a.data(),
                         .a_stride = kK,
                         .rows = kRows,
                         .panel = panel.data(),
                         .k = kK,
                         .columns = kPanelColumns,
                         .out = out.data(),
                         .out_stride = kPanelColumns});
    return out;
  };
  const std::vector<float> a = run(tested);
  const std::vector<float> b = run(trusted);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (!both_nan && std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}

bool PassesSelfTest(const KernelTable& tested, const KernelTable& trusted) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    if (!SameProduct(tested, trusted, seed * 7919)) return false;
  }
  return true;
}

std::vector<std::string> Detect() {
  std::vector<std::string> isas;
  if (HasAvx2() && HasAvx512Bf16() && PassesSelfTest(Avx512Bf16Table(), Avx2Table())) isas.emplace_back("avx512bf16");
  if (HasAvx2()) isas.emplace_back("avx2");
  isas.emplace_back("scalar");
  return isas;
}

}  // namespace

const std::vector<std::string>& DetectedIsas() {
  static const std::vector<std::string> isas = Detect();
  return isas;
}

StatusOr<const KernelTable*> ChooseTable(const std::string_view name) {
  const std::string_view wanted = name.empty() ? std::string_view(DetectedIsas().front()) : name;
  const bool known = wanted == "avx512bf16" || wanted == "avx2" || wanted == "scalar";
  if (!known) {
    return InvalidArgument("unknown instruction set '" + std::string(wanted) + "'; known: avx512bf16, avx2, scalar",
                           "isa");
  }
  const auto& isas = DetectedIsas();
  if (std::find(isas.begin(), isas.end(), wanted) == isas.end()) {
    return FailedPrecondition("this machine does not run instruction set '" + std::string(wanted) +
                              "'; best here: " + isas.front());
  }
  if (wanted == "avx512bf16") return &Avx512Bf16Table();
  if (wanted == "avx2") return &Avx2Table();
  return &ScalarTable();
}

}  // namespace invar::kernels::cpu
