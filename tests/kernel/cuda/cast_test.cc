#include "kernel/cuda/cast.h"

#include "kernel/cuda/twin_memory.h"
#include "kernel/support.h"

namespace headrace {
namespace {

using testing::TwinMemory;

constexpr DType k_dtypes[] = {DType::float32, DType::bfloat16};

class CudaCastTest : public testing::DeviceTest {
 protected:
  struct Placed {
    std::size_t to;
    DType to_dtype;
    std::size_t from;
    DType from_dtype;
    std::size_t count;
  };

  static Placed place(TwinMemory& memory, DType to, std::size_t to_past, DType from,
                      std::size_t from_past, std::size_t count) {
    return {memory.place(count * item_size(to), to_past * item_size(to)), to,
            memory.place_numbers(from, count, from_past * item_size(from)), from, count};
  }

  // All jobs on both sides: the host's kernels say what is right.
  void run(TwinMemory& memory, const std::vector<Placed>& placed, int blocks) {
    memory.mirror();
    std::vector<CastJob> host_jobs;
    std::vector<CastJob> device_jobs;
    for (const Placed& job : placed) {
      host_jobs.push_back({memory.host(job.to), job.to_dtype, memory.host(job.from),  //
                           job.from_dtype, job.count});
      device_jobs.push_back({memory.device(job.to), job.to_dtype, memory.device(job.from),
                             job.from_dtype, job.count});
    }
    InlineStream inline_stream;
    ASSERT_TRUE(host_kernels().cast(inline_stream, host_jobs));
    const Status launched = launch_cast(handle(), device_jobs, blocks);
    ASSERT_TRUE(launched) << launched.error().describe();
    ASSERT_TRUE(memory.matches());
  }
};

TEST_F(CudaCastTest, many_jobs_of_all_alignments_give_the_hosts_bits) {
  for (const int blocks : {1, 264}) {
    TwinMemory memory(next_seed());
    std::vector<Placed> placed;
    for (const std::size_t count : {0U, 1U, 7U, 31U, 4095U}) {
      for (std::size_t to_past = 0; to_past < 8; ++to_past) {
        for (std::size_t from_past = 0; from_past < 8; ++from_past) {
          for (const DType from : k_dtypes) {
            const DType to = from == DType::float32 ? DType::bfloat16 : DType::float32;
            placed.push_back(place(memory, to, to_past, from, from_past, count));
          }
        }
      }
      placed.push_back(place(memory, DType::float32, 1, DType::float32, 3, count));
      placed.push_back(place(memory, DType::bfloat16, 1, DType::bfloat16, 2, count));
    }
    run(memory, placed, blocks);
  }
}

TEST_F(CudaCastTest, a_large_job_gives_the_hosts_bits) {
  for (const DType from : k_dtypes) {
    const DType to = from == DType::float32 ? DType::bfloat16 : DType::float32;
    for (const std::size_t from_past : {3U, 5U}) {  // aligned alike, and not
      TwinMemory memory(next_seed());
      run(memory, {place(memory, to, 3, from, from_past, large_count())}, 16);
    }
  }
}

TEST_F(CudaCastTest, every_bfloat16_survives_fp32_and_back) {
  constexpr std::size_t k_patterns = 1U << 16U;
  TwinMemory memory(next_seed());
  const std::size_t all = memory.place(k_patterns * 2, 0);
  const std::size_t wide = memory.place(k_patterns * 4, 0);
  const std::size_t back = memory.place(k_patterns * 2, 0);
  memory.mirror();
  for (std::size_t i = 0; i < k_patterns; ++i) {
    memory.host<std::uint16_t>(all)[i] = static_cast<std::uint16_t>(i);
  }
  memory.upload();
  for (std::size_t i = 0; i < k_patterns; ++i) {
    memory.host<std::uint32_t>(wide)[i] = static_cast<std::uint32_t>(i) << 16U;
    const bool signalling = (i & 0x7F80U) == 0x7F80U && (i & 0x7FU) != 0 && (i & 0x40U) == 0;
    memory.host<std::uint16_t>(back)[i] = static_cast<std::uint16_t>(signalling ? i | 0x40U : i);
  }
  const CastJob widen[] = {
      {memory.device(wide), DType::float32, memory.device(all), DType::bfloat16, k_patterns}};
  const CastJob narrow[] = {
      {memory.device(back), DType::bfloat16, memory.device(wide), DType::float32, k_patterns}};
  ASSERT_TRUE(launch_cast(handle(), widen, 8));
  ASSERT_TRUE(launch_cast(handle(), narrow, 8));
  EXPECT_TRUE(memory.matches());
}

}  // namespace
}  // namespace headrace
