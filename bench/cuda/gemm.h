#pragma once

#include "bench/cuda/work.h"

namespace headrace::bench {

/// C[rows, columns] = A[rows, inner] * B[columns, inner]^T in bf16, accumulated in fp32.
struct GemmShape {
  int rows = 256;
  int columns = 8192;
  int inner = 8192;
};

/// The product by cuBLAS, on random values. An operation error where the loader finds no cuBLAS;
/// nothing is linked.
Result<Work> gemm_work(const GemmShape& shape);

}  // namespace headrace::bench
