#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "runtime/stream.h"

namespace headrace {

/// `count` elements from one address to another, converted where the dtypes differ.
struct CastJob {
  void* to = nullptr;
  DType to_dtype = DType::float32;
  const void* from = nullptr;
  DType from_dtype = DType::float32;
  std::size_t count = 0;
};

/// Rows of equal length, `pitch` bytes from start to start.
struct SourceRows {
  const void* address = nullptr;
  std::size_t pitch = 0;
  DType dtype = DType::float32;
};

/// Every row of `to` becomes scale * (s0 + s1 + ...), or with `add` gets that added to it, element
/// by element: see kernel/sum.h for the order and the rounding.
struct SumJob {
  float* to = nullptr;
  std::size_t to_pitch = 0;  ///< bytes
  std::vector<SourceRows> sources;
  std::size_t rows = 0;
  std::size_t elements = 0;  ///< a row
  float scale = 1.0F;
  bool add = false;
};

/// `to` gets every addend added to it, one after the other in their order, each sum rounded once.
struct FoldJob {
  float* to = nullptr;
  std::vector<const float*> addends;
  std::size_t count = 0;
};

/// What the engine computes, in stream order, on the memory of one kind of transport. Host kernels
/// run as operations of the stream; kernels of a device are launched on its native handle. All give
/// the same bits, except for the payload of a NaN. What jobs point to stays valid until the stream
/// has passed; jobs of one call write to different places.
class Kernels {
 public:
  virtual ~Kernels() = default;

  virtual Status cast(Stream& stream, std::vector<CastJob> jobs) const = 0;
  virtual Status sum(Stream& stream, SumJob job) const = 0;
  virtual Status fold(Stream& stream, std::vector<FoldJob> jobs) const = 0;
  /// destination[i] = scale * source[i], or += with `add`, rounded once to `dtype`.
  virtual Status write_scaled(Stream& stream, void* destination, DType dtype, const float* source,
                              float scale, std::size_t count, bool add) const = 0;
  /// Zeroes `rows` rows of `bytes` bytes, `pitch` bytes from start to start.
  virtual Status zero(Stream& stream, void* address, std::size_t pitch, std::size_t bytes,
                      std::size_t rows) const = 0;
};

/// The kernels of this process's own memory.
const Kernels& host_kernels();

}  // namespace headrace
