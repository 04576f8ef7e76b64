#pragma once

#include <cstddef>

#include "bench/cuda/work.h"

namespace headrace::bench {

/// y += a * x in fp32 over two arrays of `bytes` bytes each, so large that no cache holds them:
/// bound by memory alone.
struct AxpyWork {
  Work work;
  std::size_t traffic = 0;  ///< bytes read and written a launch
};
Result<AxpyWork> axpy_work(std::size_t bytes);

}  // namespace headrace::bench
