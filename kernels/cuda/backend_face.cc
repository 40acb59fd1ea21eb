// The build system says what the headers hold.
#include "kernels/cuda/module.h"

namespace invar::kernels::cuda {

const char* BackendFace() { return INVAR_BACKEND_FACE; }

}  // namespace invar::kernels::cuda
