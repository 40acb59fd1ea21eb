// Instruction sets without a bf16 product: widened rows.
struct WidenProduct;
using Bf16Product = WidenProduct;
