#include "kernel/cuda/fold.h"

#include "kernel/cuda/twin_memory.h"

namespace headrace {
namespace {

using testing::TwinMemory;

class CudaFoldTest : public testing::DeviceTest {
 protected:
  struct Placed {
    std::size_t to;
    std::vector<std::size_t> addends;
    std::size_t count;
  };

  static constexpr std::size_t k_many = 10;

  // Addend i lies i * `step` elements further past an aligned address than the destination.
  static Placed place(TwinMemory& memory, std::size_t to_past, std::size_t step,
                      std::size_t addends, std::size_t count) {
    const auto array = [&](std::size_t past) {
      return addends < k_many ? memory.place_numbers(DType::float32, count, 4 * past)
                              : memory.place_ordinary(DType::float32, count, 4 * past);
    };
    Placed job = {array(to_past), {}, count};
    for (std::size_t i = 0; i < addends; ++i) {
      job.addends.push_back(array((to_past + i * step) % 4));
    }
    memory.differs_in_nans(job.to, DType::float32, count);
    return job;
  }

  void run(TwinMemory& memory, const std::vector<Placed>& placed, int blocks) {
    memory.mirror();
    std::vector<FoldJob> host_jobs;
    std::vector<FoldJob> device_jobs;
    for (const Placed& each : placed) {
      FoldJob host = {memory.host<float>(each.to), {}, each.count};
      FoldJob device = {memory.device<float>(each.to), {}, each.count};
      for (const std::size_t addend : each.addends) {
        host.addends.push_back(memory.host<float>(addend));
        device.addends.push_back(memory.device<float>(addend));
      }
      host_jobs.push_back(host);
      device_jobs.push_back(device);
    }
    InlineStream inline_stream;
    ASSERT_TRUE(host_kernels().fold(inline_stream, host_jobs));
    const Status launched = launch_fold(handle(), device_jobs, blocks);
    ASSERT_TRUE(launched) << launched.error().describe();
    ASSERT_TRUE(memory.matches());
  }
};

TEST_F(CudaFoldTest, many_jobs_give_the_hosts_bits_at_all_alignments) {
  for (const std::size_t step : {0U, 1U}) {
    TwinMemory memory(next_seed());
    std::vector<Placed> placed;
    for (std::size_t addends = 0; addends <= 9; ++addends) {
      for (const std::size_t count : {0U, 1U, 7U, 31U, 4095U}) {
        placed.push_back(place(memory, addends % 4, step, addends, count));
      }
    }
    run(memory, placed, 6);
  }
}

TEST_F(CudaFoldTest, more_addends_than_a_launch_holds_are_added_in_their_order) {
  TwinMemory memory(next_seed());
  run(memory,
      {place(memory, 1, 0, 3, 40), place(memory, 2, 0, 600, 301), place(memory, 0, 0, 2, 9)}, 4);
}

TEST_F(CudaFoldTest, a_large_job_gives_the_hosts_bits) {
  TwinMemory memory(next_seed());
  run(memory, {place(memory, 3, 0, 3, large_count())}, 16);
}

}  // namespace
}  // namespace headrace
