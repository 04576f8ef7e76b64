#include "bench/cuda/gemm.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <library_types.h>

#include <memory>

#include "bench/cuda/buffer.h"
#include "bench/cuda/random_values.h"

namespace headrace::bench {
namespace {

// As cublas_api.h has them; the toolkit may come without it.
constexpr int k_success = 0;
constexpr int k_transposed = 1;
constexpr int k_plain = 0;
constexpr int k_compute_fp32 = 68;
constexpr int k_default_algorithm = -1;
using Handle = void*;
using Create = int (*)(Handle*);
using Destroy = int (*)(Handle);
using SetStream = int (*)(Handle, cudaStream_t);
using GemmEx = int (*)(Handle, int, int, int, int, int, const void*, const void*, cudaDataType, int,
                       const void*, cudaDataType, int, const void*, void*, cudaDataType, int, int,
                       int);

Status ok(int status, const char* call) {
  return status == k_success
             ? Status()
             : Status(operation_error(fmt::format("{} ended with status {}", call, status)));
}

struct Cublas {
  Create create = nullptr;
  Destroy destroy = nullptr;
  SetStream set_stream = nullptr;
  GemmEx gemm = nullptr;
};

Result<Cublas> load() {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      break;
    }
  }
  if (library == nullptr) {
    return operation_error("cuBLAS is absent: put the folder of libcublas.so in LD_LIBRARY_PATH");
  }
  const Cublas found{
      .create = reinterpret_cast<Create>(::dlsym(library, "cublasCreate_v2")),
      .destroy = reinterpret_cast<Destroy>(::dlsym(library, "cublasDestroy_v2")),
      .set_stream = reinterpret_cast<SetStream>(::dlsym(library, "cublasSetStream_v2")),
      .gemm = reinterpret_cast<GemmEx>(::dlsym(library, "cublasGemmEx"))};
  if (found.create == nullptr || found.destroy == nullptr || found.set_stream == nullptr ||
      found.gemm == nullptr) {
    return operation_error("this cuBLAS lacks a function of cuBLAS 12");
  }
  return found;
}

// Everything that the launches of one product need.
struct Product {
  Product(Cublas loaded, DeviceBuffer left, DeviceBuffer right, DeviceBuffer result)
      : cublas(loaded), a(std::move(left)), b(std::move(right)), c(std::move(result)) {}
  ~Product() {
    if (handle != nullptr) {
      cublas.destroy(handle);
    }
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  Cublas cublas;
  DeviceBuffer a;
  DeviceBuffer b;
  DeviceBuffer c;
  Handle handle = nullptr;
};

}  // namespace

Result<Work> gemm_work(const GemmShape& shape) {
  HEADRACE_TRY_ASSIGN(const Cublas cublas, load());
  const auto elements = [](int rows, int columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  };
  const std::size_t a_elements = elements(shape.rows, shape.inner);
  const std::size_t b_elements = elements(shape.columns, shape.inner);
  constexpr std::size_t item = 2;
  HEADRACE_TRY_ASSIGN(auto a, DeviceBuffer::make(a_elements * item));
  HEADRACE_TRY_ASSIGN(auto b, DeviceBuffer::make(b_elements * item));
  HEADRACE_TRY_ASSIGN(auto c, DeviceBuffer::make(elements(shape.rows, shape.columns) * item));
  HEADRACE_TRY(fill_bfloat16(nullptr, a.data(), a_elements, 1));
  HEADRACE_TRY(fill_bfloat16(nullptr, b.data(), b_elements, 2));
  HEADRACE_TRY(cuda_status(cudaStreamSynchronize(nullptr), "filling the factors of a product"));
  auto product = std::make_shared<Product>(cublas, std::move(a), std::move(b), std::move(c));
  HEADRACE_TRY(ok(cublas.create(&product->handle), "cublasCreate"));
  const auto enqueue = [product, shape](cudaStream_t stream) -> Status {
    const float one = 1;
    const float zero = 0;
    HEADRACE_TRY(ok(product->cublas.set_stream(product->handle, stream), "cublasSetStream"));
    // In cuBLAS's column-major terms: C^T = B * A^T, with B given transposed.
    return ok(
        product->cublas.gemm(product->handle, k_transposed, k_plain, shape.columns, shape.rows,
                             shape.inner, &one, product->b.data(), CUDA_R_16BF, shape.inner,
                             product->a.data(), CUDA_R_16BF, shape.inner, &zero, product->c.data(),
                             CUDA_R_16BF, shape.columns, k_compute_fp32, k_default_algorithm),
        "cublasGemmEx");
  };
  return Work{.name = fmt::format("gemm {}x{}x{} bf16", shape.rows, shape.columns, shape.inner),
              .enqueue = enqueue};
}

}  // namespace headrace::bench
