// Opened by name and not linked: without the library the module still opens, and our own kernels multiply.
// cuBLAS sees columns first: out^T [n, rows] = W [k, n]^T x^T [k, rows].
#include "kernels/cuda/cublas_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"

namespace invar::kernels::cuda {
namespace {

// The algorithm is asked for with this many rows; which is taken does not depend on a batch.
constexpr uint64_t kTypicalRows = 64;
constexpr int kCandidates = 8;

// The library's functions, under their own names.
struct Functions {
  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtDestroy) Destroy = nullptr;
  decltype(&cublasLtGetVersion) GetVersion = nullptr;
  decltype(&cublasLtMatmulDescCreate) DescCreate = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) DescSetAttribute = nullptr;
  decltype(&cublasLtMatmulDescDestroy) DescDestroy = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) LayoutCreate = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) LayoutDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) PreferenceCreate = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) PreferenceSetAttribute = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) PreferenceDestroy = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) AlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) AlgoConfigGetAttribute = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;
};

// False: the library lacks one.
bool Bind(void* library, Functions& to) {
  const auto bind = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  return bind(to.Create, "cublasLtCreate") && bind(to.Destroy, "cublasLtDestroy") &&
         bind(to.GetVersion, "cublasLtGetVersion") && bind(to.DescCreate, "cublasLtMatmulDescCreate") &&
         bind(to.DescSetAttribute, "cublasLtMatmulDescSetAttribute") &&
         bind(to.DescDestroy, "cublasLtMatmulDescDestroy") && bind(to.LayoutCreate, "cublasLtMatrixLayoutCreate") &&
         bind(to.LayoutDestroy, "cublasLtMatrixLayoutDestroy") &&
         bind(to.PreferenceCreate, "cublasLtMatmulPreferenceCreate") &&
         bind(to.PreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute") &&
         bind(to.PreferenceDestroy, "cublasLtMatmulPreferenceDestroy") &&
         bind(to.AlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic") &&
         bind(to.AlgoConfigGetAttribute, "cublasLtMatmulAlgoConfigGetAttribute") && bind(to.Matmul, "cublasLtMatmul");
}

void Demand(const cublasStatus_t status, const char* what) {
  Check(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt does what was asked:", what, static_cast<int>(status));
}

class CublasLt final : public ProductLibrary {
 public:
  CublasLt(const Functions& lt, cublasLtHandle_t handle) : lt_(lt), handle_(handle) {
    Demand(lt_.DescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    Demand(lt_.DescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
           "a transposed weight");
  }
  ~CublasLt() override {
    lt_.DescDestroy(product_);
    lt_.Destroy(handle_);
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  std::string name() const override { return "lt" + std::to_string(lt_.GetVersion()); }

  bool Multiply(const ProductArgs& args, const Stream stream) override {
    const auto [found, is_new] = algorithms_.try_emplace({args.weight.rows, args.weight.cols}, std::nullopt);
    if (is_new) found->second = Choose(args);
    if (!found->second.has_value()) return false;
    const Layouts layouts(*this, args, static_cast<uint64_t>(args.x.rows));
    const float one = 1.0F;
    const float keep = args.add ? 1.0F : 0.0F;
    return lt_.Matmul(handle_, product_, &one, args.weight.data, layouts.weight, args.x.data, layouts.x, &keep,
                      args.out.data, layouts.out, args.out.data, layouts.out, &*found->second, nullptr, 0,
                      static_cast<cudaStream_t>(stream)) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  struct Layouts {
    Layouts(const CublasLt& owner, const ProductArgs& args, const uint64_t rows) : lt(owner.lt_) {
      const auto n = static_cast<uint64_t>(args.weight.rows);
      const auto k = static_cast<uint64_t>(args.weight.cols);
      Demand(lt.LayoutCreate(&weight, CUDA_R_16BF, k, n, PackedStride(args.weight.cols)), "a layout");
      Demand(lt.LayoutCreate(&x, CUDA_R_16BF, k, rows, args.x.stride), "a layout");
      Demand(lt.LayoutCreate(&out, CUDA_R_32F, n, rows, args.out.stride), "a layout");
    }
    ~Layouts() {
      lt.LayoutDestroy(weight);
      lt.LayoutDestroy(x);
      lt.LayoutDestroy(out);
    }
    Layouts(const Layouts&) = delete;
    Layouts& operator=(const Layouts&) = delete;

    const Functions& lt;
    cublasLtMatrixLayout_t weight = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
  };

  std::optional<cublasLtMatmulAlgo_t> Choose(const ProductArgs& args) const {
    cublasLtMatmulPreference_t preference = nullptr;
    Demand(lt_.PreferenceCreate(&preference), "a preference");
    const uint64_t workspace = 0;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
    Demand(
        lt_.PreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)),
        "no workspace");
    Demand(lt_.PreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                      sizeof(reductions)),
           "no reduction");
    const Layouts layouts(*this, args, kTypicalRows);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int count = 0;
    const cublasStatus_t status = lt_.AlgoGetHeuristic(handle_, product_, layouts.weight, layouts.x, layouts.out,
                                                       layouts.out, preference, kCandidates, results.data(), &count);
    lt_.PreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    for (int i = 0; i < count; ++i) {
      int32_t parts = 0;
      size_t written = 0;
      const bool known = lt_.AlgoConfigGetAttribute(&results[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                                    sizeof(parts), &written) == CUBLAS_STATUS_SUCCESS;
      if (results[i].state == CUBLAS_STATUS_SUCCESS && known && parts <= 1) return results[i].algo;
    }
    return std::nullopt;
  }

  const Functions lt_;
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t product_ = nullptr;
  // By rows and columns of the weight. None: our own kernel.
  std::map<std::pair<int64_t, int64_t>, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

}  // namespace

StatusOr<std::unique_ptr<ProductLibrary>> OpenCublasLt() {
  const std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    return FailedPrecondition(error != nullptr ? error : file + " cannot be opened");
  }
  Functions lt;
  if (!Bind(library, lt)) return FailedPrecondition(file + " lacks a function that this build was made with");
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = lt.Create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return FailedPrecondition(file + " does not start: status " + std::to_string(static_cast<int>(status)));
  }
  return std::unique_ptr<ProductLibrary>(std::make_unique<CublasLt>(lt, handle));
}

}  // namespace invar::kernels::cuda
