// out = x W^T (+ bias), stored or added: tiles of product.cuh over the whole product.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.cuh"

namespace invar::kernels::cuda {
namespace {

template <typename Tile>
__global__ void __launch_bounds__(kProductThreads) LinearTiles(const ProductTile product) {
  SharedArrays shared(SharedMemory());
  Tile::Run(product, Tile::Take(shared), BlockY() * Tile::kRows, BlockX() * Tile::kColumns);
}

template <typename Tile>
void LaunchTiles(const ProductTile& product, const Stream stream) {
  // Columns along x, which a device walks first: blocks that run together share rows of x and not weights.
  Launch("linear", LinearTiles<Tile>,
         {{CeilDiv(product.n, Tile::kColumns), CeilDiv(product.rows, Tile::kRows)},
          kProductThreads,
          SharedBytesOf<Tile>()},
         stream, product);
}

}  // namespace

void Linear(const ProductArgs& args, const Stream stream) {
  const ProductTile product{.x = args.x.data,
                            .x_dtype = args.x.dtype,
                            .x_stride = args.x.stride,
                            .x_rows = nullptr,
                            .rows = args.x.rows,
                            .weight = args.weight.data,
                            .weight_dtype = args.weight.dtype,
                            .n = args.weight.rows,
                            .k = args.weight.cols,
                            .bias = args.bias,
                            .add = args.add,
                            .out = args.out.data,
                            .out_stride = args.out.stride};
  if (args.x.dtype != DType::kBf16 || args.weight.dtype != DType::kBf16) return LaunchTiles<FmaTile>(product, stream);
  if (args.x.rows <= kFewRows) return LaunchTiles<FewRowsTile>(product, stream);
  LaunchTiles<ManyRowsTile>(product, stream);
}

}  // namespace invar::kernels::cuda
