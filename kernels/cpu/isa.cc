// Detects once. The self-test compares the bf16 product of AVX-512 with fused multiply-adds on adversarial and random
// values: on a CPU whose instruction adds in another order, the build without it (same definition) runs instead.
#include "kernels/cpu/isa.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/worker_pool.h"
#include "config/isa_names.h"
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

bool Always() { return true; }

struct Isa {
  std::string_view name;
  bool (*present)();
  const KernelTable& (*table)();
};

// Row i is kIsaNames[i]. Best first, but for the order of the two AVX-512 sets (see Detect).
constexpr std::array<Isa, kIsaNames.size()> kIsas = {{{kIsaNames[0], HasAvx512Bf16, Avx512Bf16Table},
                                                      {kIsaNames[1], HasAvx512, Avx512Table},
                                                      {kIsaNames[2], HasAvx2, Avx2Table},
                                                      {kIsaNames[3], Always, ScalarTable}}};

// Flops a second of the product's inner operation, best of a few runs of about 0.1 ms.
double ProductRate(const KernelTable& table) {
  constexpr int64_t kSteps = 4096;
  double best = 0.0;
  float sink = 0.0F;
  for (int run = 0; run < 4; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const double flops = table.product_peak(kSteps, &sink);
    best = std::max(best, flops / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

std::vector<const Isa*> Detect() {
  std::vector<const Isa*> isas;
  for (const Isa& isa : kIsas) {
    if (!isa.present()) continue;
    const bool own_product = !isa.table().expands;
    if (!own_product || (HasAvx2() && PassesSelfTest(isa.table(), Avx2Table()))) isas.push_back(&isa);
  }
  // Processors exist whose pair product runs at half the rate of the two fused multiply-adds it stands for (Sapphire
  // and Emerald Rapids), and such where it runs at twice (Zen 4). At a tie the pair product wins: it needs no widening.
  // Bits are equal, so that a wrong guess under load costs time alone.
  constexpr double kClear = 1.2;
  if (!isas[0]->table().expands && ProductRate(isas[1]->table()) > kClear * ProductRate(isas[0]->table())) {
    std::swap(isas[0], isas[1]);
  }
  return isas;
}

const std::vector<const Isa*>& Detected() {
  static const std::vector<const Isa*> isas = Detect();
  return isas;
}

}  // namespace

std::vector<std::string> DetectedIsas() {
  std::vector<std::string> names;
  for (const Isa* isa : Detected()) names.emplace_back(isa->name);
  return names;
}

StatusOr<const KernelTable*> ChooseTable(const std::string_view name) {
  if (name.empty()) return &Detected().front()->table();
  for (const Isa* isa : Detected()) {
    if (isa->name == name) return &isa->table();
  }
  if (std::find(kIsaNames.begin(), kIsaNames.end(), name) != kIsaNames.end()) {
    return FailedPrecondition("this machine does not run instruction set '" + std::string(name) +
                              "'; best here: " + std::string(Detected().front()->name));
  }
  std::string known;
  for (const std::string_view each : kIsaNames) known += (known.empty() ? "" : ", ") + std::string(each);
  return InvalidArgument("unknown instruction set '" + std::string(name) + "'; known: " + known, "isa");
}

}  // namespace invar::kernels::cpu
