#include <algorithm>
#include <cstring>
#include <utility>

#include "kernel/accumulate.h"
#include "kernel/cast.h"
#include "kernel/kernels.h"
#include "kernel/sum.h"

namespace headrace {
namespace {

// Of a sum that is folded, so that it is read and written once whatever the number of addends.
constexpr std::size_t k_fold_elements = 16 * 1024;

void fold_one(const FoldJob& job) {
  for (std::size_t begin = 0; begin < job.count; begin += k_fold_elements) {
    const std::size_t count = std::min(k_fold_elements, job.count - begin);
    for (const float* addend : job.addends) {
      accumulate(job.to + begin, addend + begin, DType::float32, count);
    }
  }
}

void sum_rows(const SumJob& job) {
  std::vector<Summand> summands(job.sources.size());
  for (std::size_t row = 0; row < job.rows; ++row) {
    for (std::size_t s = 0; s < job.sources.size(); ++s) {
      const SourceRows& source = job.sources[s];
      summands[s] = {static_cast<const std::byte*>(source.address) + row * source.pitch,
                     source.dtype};
    }
    auto* to = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(job.to) + row * job.to_pitch);
    sum(to, summands, job.elements, job.scale, job.add);
  }
}

class HostKernels final : public Kernels {
 public:
  Status cast(Stream& stream, std::vector<CastJob> jobs) const override {
    return stream.enqueue([jobs = std::move(jobs)]() -> Status {
      for (const CastJob& job : jobs) {
        headrace::cast(job.to, job.to_dtype, job.from, job.from_dtype, job.count);
      }
      return {};
    });
  }

  Status sum(Stream& stream, SumJob job) const override {
    return stream.enqueue([job = std::move(job)]() -> Status {
      sum_rows(job);
      return {};
    });
  }

  Status fold(Stream& stream, std::vector<FoldJob> jobs) const override {
    return stream.enqueue([jobs = std::move(jobs)]() -> Status {
      std::for_each(jobs.begin(), jobs.end(), fold_one);
      return {};
    });
  }

  Status write_scaled(Stream& stream, void* destination, DType dtype, const float* source,
                      float scale, std::size_t count, bool add) const override {
    return stream.enqueue([=]() -> Status {
      headrace::write_scaled(destination, dtype, source, scale, count, add);
      return {};
    });
  }

  Status zero(Stream& stream, void* address, std::size_t pitch, std::size_t bytes,
              std::size_t rows) const override {
    return stream.enqueue([=]() -> Status {
      for (std::size_t row = 0; row < rows; ++row) {
        std::memset(static_cast<std::byte*>(address) + row * pitch, 0, bytes);
      }
      return {};
    });
  }
};

}  // namespace

const Kernels& host_kernels() {
  static const HostKernels kernels;
  return kernels;
}

}  // namespace headrace
