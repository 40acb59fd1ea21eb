// Instruction sets without a bf16 product, or with a slow one: bf16 activations are widened to f32 rows first, so their
// product is WidenProduct.
static constexpr bool kExpands = true;

struct WidenProduct;
using Bf16Product = WidenProduct;
