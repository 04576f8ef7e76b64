#include <algorithm>
#include <vector>

#include "kernel/cuda/fold.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/vector.cuh"
#include "kernel/cuda/warp_tiles.cuh"

namespace headrace {
namespace {

constexpr unsigned k_group = 4;
constexpr unsigned k_unroll = 2;
constexpr unsigned k_group_bytes = k_group * sizeof(float);
/// Addends loaded before the first is added.
constexpr unsigned k_batch = 4;

struct Fold {
  Access to;
  GroupedRow row;
  unsigned first_addend;
  unsigned addends;
  unsigned addend_width;  ///< the least of all
  bool full;

  std::size_t tiles() const { return warp_tiles<k_group, k_unroll>(row); }
};

// So many that the parameters of a launch stay cheap.
constexpr unsigned k_jobs = 24;
constexpr unsigned k_addends = 256;

struct FoldTable {
  JobTable<Fold, k_jobs> jobs;
  std::uintptr_t addends[k_addends] = {};  ///< bases, as of an Access
  unsigned addends_count = 0;

  bool room_for_a_job() const { return jobs.count < k_jobs && addends_count < k_addends; }

  /// Adds the job with its addends from `first` on, as many as there is room for; how many.
  std::size_t add(const FoldJob& job, std::size_t first) {
    const auto count = static_cast<unsigned>(
        std::min<std::size_t>(job.addends.size() - first, k_addends - addends_count));
    std::vector<Operand> operands = {{job.to, sizeof(float)}};
    for (unsigned i = 0; i < count; ++i) {
      operands.push_back({job.addends[first + i], sizeof(float)});
    }
    const std::size_t lead = best_lead(operands, k_group);
    Fold fold = {access(operands.front(), lead, k_group),
                 GroupedRow{lead, lead + job.count},
                 addends_count,
                 count,
                 k_vector_bytes,
                 true};
    fold.full = fold.to.full;
    for (unsigned i = 0; i < count; ++i) {
      const Access addend = access(operands[1 + i], lead, k_group);
      addends[addends_count++] = addend.base;
      fold.addend_width = std::min(fold.addend_width, addend.width);
      fold.full = fold.full && addend.full;
    }
    jobs.add(fold);
    return count;
  }
};
static_assert(sizeof(FoldTable) <= k_cheap_parameters);

using Values = Floats<k_group>;
using Loaded = Packed<DType::float32, k_group>;

/// Adds all addends to whole groups group, group + 32, ...
template <unsigned unroll>
__device__ __forceinline__ void fold_whole_groups(const FoldTable& table, const Fold& job,
                                                  std::size_t group) {
  const std::size_t at = group * k_group_bytes;
  constexpr std::size_t k_step = k_warp * k_group_bytes;
  Values totals[unroll];
#pragma unroll
  for (unsigned i = 0; i < unroll; ++i) {
    totals[i] = unpack<DType::float32, k_group>(load_vector<k_group_bytes>(job.to.base + at +  //
                                                                           i * k_step));
  }
#pragma unroll 1
  for (unsigned first = 0; first < job.addends; first += k_batch) {
    Loaded loaded[k_batch][unroll] = {};
#pragma unroll
    for (unsigned a = 0; a < k_batch; ++a) {
      if (first + a < job.addends) {
        const std::uintptr_t from = table.addends[job.first_addend + first + a] + at;
#pragma unroll
        for (unsigned i = 0; i < unroll; ++i) {
          loaded[a][i] = load_vector<k_group_bytes>(from + i * k_step);
        }
      }
    }
#pragma unroll
    for (unsigned a = 0; a < k_batch; ++a) {
      if (first + a < job.addends) {
#pragma unroll
        for (unsigned i = 0; i < unroll; ++i) {
          totals[i] = plus(totals[i], unpack<DType::float32, k_group>(loaded[a][i]));
        }
      }
    }
  }
#pragma unroll
  for (unsigned i = 0; i < unroll; ++i) {
    store_vector(job.to.base + at + i * k_step, pack<DType::float32>(totals[i]));
  }
}

__device__ __noinline__ void fold_part(const FoldTable& table, const Fold& job, std::size_t group,
                                       Part part) {
  const std::size_t at = group * k_group_bytes;
  Values total = load_part<DType::float32, k_group>(job.to.base + at, job.to.width, part);
  for (unsigned a = 0; a < job.addends; ++a) {
    total = plus(total, load_part<DType::float32, k_group>(table.addends[job.first_addend + a] + at,
                                                           job.addend_width, part));
  }
  store_part<DType::float32>(job.to.base + at, job.to.width, part, total);
}

__global__ void __launch_bounds__(k_block_threads, k_blocks_per_multiprocessor)
    fold_kernel(const __grid_constant__ FoldTable table) {
  for_each_tile(table.jobs, [&](const Fold& job, std::size_t tile) {
    const std::size_t first = tile * (k_warp * k_unroll);
    const std::size_t own = first + lane_of_warp();
    if (job.full && all_whole<k_group>(job.row, first, k_warp * k_unroll)) {
      return fold_whole_groups<k_unroll>(table, job, own);
    }
#pragma unroll 1
    for (unsigned i = 0; i < k_unroll; ++i) {
      const Part part = part_of<k_group>(job.row, own + i * k_warp);
      if (job.full && part.end - part.begin == k_group) {
        fold_whole_groups<1>(table, job, own + i * k_warp);
      } else if (part.begin < part.end) {
        fold_part(table, job, own + i * k_warp, part);
      }
    }
  });
}

}  // namespace

Status launch_fold(cudaStream_t stream, std::span<const FoldJob> jobs, int blocks) {
  FoldTable table;
  const auto flush = [&]() -> Status {
    if (table.jobs.count == 0) {
      return {};
    }
    HEADRACE_TRY(launch("launch of the fold kernel", stream,
                        {blocks_for(table.jobs.tiles(), blocks)}, fold_kernel, table));
    table = {};
    return {};
  };
  for (const FoldJob& job : jobs) {
    for (std::size_t first = 0; job.count > 0 && first < job.addends.size();) {
      // The same destination twice in one launch would be a race.
      if (!table.room_for_a_job() || first > 0) {
        HEADRACE_TRY(flush());
      }
      first += table.add(job, first);
    }
  }
  return flush();
}

}  // namespace headrace
