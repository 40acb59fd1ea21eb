// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): the checksum of what crosses a network. Against broken links
// and memory, not against an attacker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace invar {

// Of what came before `crc` (0: nothing) followed by `bytes`. The instruction where the machine has it, a table
// elsewhere; the same value. Threads: any.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

// The definition, a bit at a time: for tests.
uint32_t Crc32cByBits(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace invar
