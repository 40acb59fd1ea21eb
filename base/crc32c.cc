// See crc32c.h.
#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace invar {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;

constexpr uint32_t Shifted(uint32_t crc) {
  for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
  return crc;
}

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) table[i] = Shifted(i);
  return table;
}

uint32_t ByTable(const std::span<const std::byte> bytes, uint32_t crc) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(const std::span<const std::byte> bytes, uint32_t crc) {
  uint64_t wide = crc;
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; at < bytes.size(); ++at) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(bytes[at]));
  return crc;
}
#endif

}  // namespace

uint32_t Crc32c(const std::span<const std::byte> bytes, const uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~ByInstruction(bytes, ~crc);
#endif
  return ~ByTable(bytes, ~crc);
}

uint32_t Crc32cByBits(const std::span<const std::byte> bytes, const uint32_t crc) {
  uint32_t value = ~crc;
  for (const std::byte byte : bytes) value = Shifted(value ^ static_cast<uint8_t>(byte));
  return ~value;
}

}  // namespace invar
