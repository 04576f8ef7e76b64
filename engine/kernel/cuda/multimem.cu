#include <cuda.h>

#include "kernel/cuda/launch.h"
#include "kernel/cuda/multimem.h"
#include "kernel/cuda/vector.cuh"
#include "kernel/cuda/warp_tiles.cuh"

namespace headrace {
namespace {

// Groups of 16 bytes of 32-bit words on the multicast side: an fp32 number, two bf16 or raw bytes.
constexpr unsigned k_group = 4;
constexpr unsigned k_unroll = 4;
constexpr unsigned k_word = 4;
constexpr unsigned k_group_bytes = k_group * k_word;
using Words = Vector<k_group_bytes>;

struct MultimemJob {
  Access multicast;
  Access own;
  GroupedRow row;  ///< words of the multicast side
  float scale = 1.0F;
};

#if __CUDA_ARCH__ >= 900
template <DType dtype>
__device__ __forceinline__ Words load_sum(std::uintptr_t address) {
  Words sum;
  if constexpr (dtype == DType::float32) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(sum.words[0]), "=r"(sum.words[1]), "=r"(sum.words[2]), "=r"(sum.words[3])
                 : "l"(address)
                 : "memory");
  } else {
    asm volatile(
        "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
        : "=r"(sum.words[0]), "=r"(sum.words[1]), "=r"(sum.words[2]), "=r"(sum.words[3])
        : "l"(address)
        : "memory");
  }
  return sum;
}

template <DType dtype>
__device__ __forceinline__ unsigned load_sum_word(std::uintptr_t address) {
  unsigned sum = 0;
  if constexpr (dtype == DType::float32) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];"
                 : "=r"(sum)
                 : "l"(address)
                 : "memory");
  } else {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.bf16x2 %0, [%1];"
                 : "=r"(sum)
                 : "l"(address)
                 : "memory");
  }
  return sum;
}

__device__ __forceinline__ void add_words(std::uintptr_t address, const Words& words) {
  asm volatile("multimem.red.relaxed.sys.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address),
               "r"(words.words[0]), "r"(words.words[1]), "r"(words.words[2]), "r"(words.words[3])
               : "memory");
}

__device__ __forceinline__ void add_word(std::uintptr_t address, unsigned word) {
  asm volatile("multimem.red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(address), "r"(word)
               : "memory");
}

__device__ __forceinline__ void store_words(std::uintptr_t address, const Words& words) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address),
               "r"(words.words[0]), "r"(words.words[1]), "r"(words.words[2]), "r"(words.words[3])
               : "memory");
}

__device__ __forceinline__ void store_word(std::uintptr_t address, unsigned word) {
  asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
}
#endif

/// Floats that a word stands for.
template <DType dtype>
constexpr unsigned k_floats = k_word / k_item<dtype>;

template <DType dtype>
__device__ __forceinline__ void store_scaled_words(const MultimemJob& job, std::size_t group,
                                                   const Words& words) {
  constexpr unsigned k_count = k_group * k_floats<dtype>;
  const auto values = times(job.scale, unpack<dtype, k_count>(words));
  store_vector(job.own.base + group * k_count * sizeof(float), pack<DType::float32>(values),
               job.own.width);
}

template <DType dtype>
__device__ __forceinline__ void store_scaled_word(const MultimemJob& job, std::size_t word,
                                                  unsigned value) {
  auto* to = reinterpret_cast<float*>(job.own.base) + word * k_floats<dtype>;
  if constexpr (dtype == DType::float32) {
    to[0] = __fmul_rn(job.scale, __uint_as_float(value));
  } else {
    to[0] = __fmul_rn(job.scale, __uint_as_float(value << 16));
    to[1] = __fmul_rn(job.scale, __uint_as_float(value & 0xFFFF0000U));
  }
}

template <DType dtype>
__global__ void __launch_bounds__(k_block_threads)
    multimem_sum_kernel(const __grid_constant__ MultimemJob job) {
#if __CUDA_ARCH__ >= 900
  const std::size_t tiles = warp_tiles<k_group, k_unroll>(job.row);
  for (std::size_t tile = warp_of_grid(); tile < tiles; tile += warps_of_grid()) {
    run_tile<k_group, k_unroll>(
        job.row, tile, job.multicast.full,
        [&](std::size_t group) {
          return load_sum<dtype>(job.multicast.base + group * k_group_bytes);
        },
        [&](std::size_t group, const Words& words) {
          store_scaled_words<dtype>(job, group, words);
        },
        [&](std::size_t group, Part part) {
          for (unsigned i = part.begin; i < part.end; ++i) {
            const std::size_t word = group * k_group + i;
            store_scaled_word<dtype>(job, word,
                                     load_sum_word<dtype>(job.multicast.base + word * k_word));
          }
        });
  }
#endif
}

enum class Write : std::uint8_t { add, store };

template <Write write>
__global__ void __launch_bounds__(k_block_threads)
    multimem_write_kernel(const __grid_constant__ MultimemJob job) {
#if __CUDA_ARCH__ >= 900
  const std::size_t tiles = warp_tiles<k_group, k_unroll>(job.row);
  for (std::size_t tile = warp_of_grid(); tile < tiles; tile += warps_of_grid()) {
    run_tile<k_group, k_unroll>(
        job.row, tile, job.multicast.full,
        [&](std::size_t group) {
          return load_vector<k_group_bytes>(job.own.base + group * k_group_bytes, job.own.width);
        },
        [&](std::size_t group, const Words& words) {
          const std::uintptr_t to = job.multicast.base + group * k_group_bytes;
          write == Write::add ? add_words(to, words) : store_words(to, words);
        },
        [&](std::size_t group, Part part) {
          for (unsigned i = part.begin; i < part.end; ++i) {
            const std::size_t at = (group * k_group + i) * k_word;
            const unsigned word = *reinterpret_cast<const unsigned*>(job.own.base + at);
            const std::uintptr_t to = job.multicast.base + at;
            write == Write::add ? add_word(to, word) : store_word(to, word);
          }
        });
  }
#endif
}

/// The lead that aligns the multicast side; the own side takes what width is left.
MultimemJob job_of(const void* multicast, const void* own, std::size_t own_item, std::size_t words,
                   float scale) {
  const Operand remote[] = {{multicast, k_word}};
  const std::size_t lead = best_lead(remote, k_group);
  return {access(remote[0], lead, k_group), access({own, own_item}, lead, k_group),
          GroupedRow{lead, lead + words}, scale};
}

Status launch_job(const char* what, cudaStream_t stream, void (*kernel)(MultimemJob),
                  const MultimemJob& job, int blocks) {
  HEADRACE_TRY_ASSIGN(const bool supported, multicast_supported());
  if (!supported) {
    return operation_error("this device has no multicast memory");
  }
  const std::size_t tiles = warp_tiles<k_group, k_unroll>(job.row);
  return tiles == 0 ? Status() : launch(what, stream, {blocks_for(tiles, blocks)}, kernel, job);
}

}  // namespace

Result<bool> multicast_supported() {
  HEADRACE_TRY_ASSIGN(const int capability, compute_capability());
  constexpr unsigned k_first_driver = 12010;  // that knows the attribute
  if (capability < k_hopper) {
    return false;
  }
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  HEADRACE_TRY(
      cuda_status(cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &function,
                                                   k_first_driver, cudaEnableDefault, &found),
                  "looking up the driver's device attributes"));
  if (found != cudaDriverEntryPointSuccess) {
    return false;
  }
  int device = 0;
  HEADRACE_TRY(cuda_status(cudaGetDevice(&device), "reading the current device"));
  int supported = 0;
  const auto attribute = reinterpret_cast<decltype(&cuDeviceGetAttribute)>(function);
  // The runtime numbers devices as the driver's handles count them.
  const CUresult result =
      attribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, static_cast<CUdevice>(device));
  return result == CUDA_SUCCESS && supported != 0;
}

Status multimem_sum(cudaStream_t stream, float* to, const void* multicast, DType dtype,
                    std::size_t count, float scale, int blocks) {
  if (dtype == DType::bfloat16 && count % 2 != 0) {
    return operation_error("a sum of bf16 through multicast memory needs an even count");
  }
  const bool single = dtype == DType::float32;
  const MultimemJob job = job_of(multicast, to, single ? sizeof(float) : 2 * sizeof(float),
                                 single ? count : count / 2, scale);
  return launch_job(
      "launch of the multimem sum kernel", stream,
      single ? multimem_sum_kernel<DType::float32> : multimem_sum_kernel<DType::bfloat16>, job,
      blocks);
}

Status multimem_accumulate(cudaStream_t stream, float* multicast, const float* from,
                           std::size_t count, int blocks) {
  return launch_job("launch of the multimem accumulate kernel", stream,
                    multimem_write_kernel<Write::add>, job_of(multicast, from, k_word, count, 1.0F),
                    blocks);
}

Status multimem_copy(cudaStream_t stream, void* multicast, const void* from, std::size_t bytes,
                     int blocks) {
  if (bytes % k_word != 0) {
    return operation_error("a copy to multicast memory needs a multiple of four bytes");
  }
  return launch_job("launch of the multimem copy kernel", stream,
                    multimem_write_kernel<Write::store>,
                    job_of(multicast, from, k_word, bytes / k_word, 1.0F), blocks);
}

}  // namespace headrace
