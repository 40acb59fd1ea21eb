// Copies of many pieces by one launch: rows, states and logs, wherever the device finds them. Blocks of a piece (the
// grid's second dimension) take kBlockBytes of it each; by 16 bytes where both ends allow it, else by 4 or 2.
#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlockBytes = int64_t{kThreads} * 16 * 4;
constexpr int64_t kMostPieces = 32768;  // Of one launch: a grid's second dimension ends at 65,535.

template <typename Word>
__device__ __forceinline__ void CopyWords(const CopyPiece& piece, const int64_t begin, const int64_t end) {
  auto* to = static_cast<Word*>(piece.to);
  const auto* from = static_cast<const Word*>(piece.from);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Word));
  for (int64_t i = begin / kBytes + Thread(); i < end / kBytes; i += kThreads) to[i] = from[i];
}

__global__ void CopyPieces(const CopyPiece* pieces) {
  const CopyPiece piece = pieces[BlockY()];
  const int64_t begin = BlockX() * kBlockBytes;
  if (begin >= piece.bytes) return;
  const int64_t end = begin + kBlockBytes < piece.bytes ? begin + kBlockBytes : piece.bytes;
  const auto aligned =
      reinterpret_cast<uintptr_t>(piece.to) | reinterpret_cast<uintptr_t>(piece.from) | static_cast<uintptr_t>(end);
  if (aligned % 16 == 0) {
    CopyWords<SixteenBytes>(piece, begin, end);
  } else if (aligned % 4 == 0) {
    CopyWords<uint32_t>(piece, begin, end);
  } else {
    CopyWords<uint16_t>(piece, begin, end);
  }
}

}  // namespace

void Copy(const CopyLaunch& args, const Stream stream) {
  for (int64_t first = 0; first < args.count; first += kMostPieces) {
    const int64_t count = std::min(args.count - first, kMostPieces);
    Launch("copy", CopyPieces, {{CeilDiv(args.longest, kBlockBytes), count}, kThreads, 0}, stream, args.pieces + first);
  }
}

}  // namespace invar::kernels::cuda
