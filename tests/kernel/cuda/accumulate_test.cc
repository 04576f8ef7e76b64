#include "kernel/cuda/accumulate.h"

#include "kernel/accumulate.h"
#include "kernel/cuda/twin_memory.h"

namespace headrace {
namespace {

using testing::TwinMemory;

constexpr DType k_dtypes[] = {DType::float32, DType::bfloat16};

class CudaAccumulateTest : public testing::DeviceTest {
 protected:
  struct Placed {
    std::size_t to;
    std::size_t from;
    DType dtype;
    std::size_t count;
  };

  void run(TwinMemory& memory, const std::vector<Placed>& placed, Adders adders, int blocks) {
    memory.mirror();
    std::vector<AccumulateJob> jobs;
    for (const Placed& job : placed) {
      accumulate(memory.host<float>(job.to), memory.host(job.from), job.dtype, job.count);
      memory.differs_in_nans(job.to, DType::float32, job.count);
      jobs.push_back({memory.device<float>(job.to), memory.device(job.from), job.dtype, job.count});
    }
    const Status launched = launch_accumulate(handle(), jobs, adders, blocks);
    ASSERT_TRUE(launched) << launched.error().describe();
    ASSERT_TRUE(memory.matches());
  }

  // One destination for all jobs, which add small integers to it from several streams at a time.
  void run_onto_one(std::size_t jobs, std::size_t count, int streams) {
    TwinMemory memory(next_seed());
    const std::size_t to = memory.place_integers(DType::float32, count, 3 * sizeof(float));
    std::vector<std::size_t> from;
    for (std::size_t j = 0; j < jobs; ++j) {
      from.push_back(memory.place_integers(k_dtypes[j % 2], count, j % 5 * 4));
    }
    memory.mirror();
    std::vector<AccumulateJob> additions;
    for (std::size_t j = 0; j < jobs; ++j) {
      for (int s = 0; s < streams; ++s) {
        accumulate(memory.host<float>(to), memory.host(from[j]), k_dtypes[j % 2], count);
      }
      additions.push_back(
          {memory.device<float>(to), memory.device(from[j]), k_dtypes[j % 2], count});
    }
    std::vector<cudaStream_t> handles(static_cast<std::size_t>(streams));
    for (cudaStream_t& each : handles) {
      ASSERT_EQ(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), cudaSuccess);
    }
    for (const cudaStream_t each : handles) {
      ASSERT_TRUE(launch_accumulate(each, additions, Adders::many, 16));
    }
    EXPECT_TRUE(memory.matches());
    for (const cudaStream_t each : handles) {
      EXPECT_EQ(cudaStreamDestroy(each), cudaSuccess);
    }
  }
};

TEST_F(CudaAccumulateTest, alone_it_gives_the_hosts_bits_at_all_alignments) {
  for (const int blocks : {1, 264}) {
    TwinMemory memory(next_seed());
    std::vector<Placed> placed;
    for (const DType dtype : k_dtypes) {
      for (const std::size_t count : {0U, 1U, 7U, 31U, 4095U}) {
        for (std::size_t to_past = 0; to_past < 4; ++to_past) {
          for (std::size_t from_past = 0; from_past < 8; ++from_past) {
            placed.push_back({memory.place_numbers(DType::float32, count, 4 * to_past),
                              memory.place_numbers(dtype, count, from_past * item_size(dtype)),
                              dtype, count});
          }
        }
      }
    }
    run(memory, placed, Adders::one, blocks);
  }
}

TEST_F(CudaAccumulateTest, large_jobs_of_both_dtypes_give_the_hosts_bits) {
  TwinMemory memory(next_seed());
  std::vector<Placed> placed;
  for (const DType dtype : k_dtypes) {
    placed.push_back({memory.place_numbers(DType::float32, large_count(), 4),
                      memory.place_numbers(dtype, large_count(), item_size(dtype)), dtype,
                      large_count()});
  }
  run(memory, placed, Adders::one, 8);
}

TEST_F(CudaAccumulateTest, reductions_alone_add_exactly_at_all_alignments) {
  TwinMemory memory(next_seed());
  std::vector<Placed> placed;
  for (const DType dtype : k_dtypes) {
    for (const std::size_t count : {0U, 1U, 7U, 31U, 4095U}) {
      for (std::size_t to_past = 0; to_past < 4; ++to_past) {
        for (std::size_t from_past = 0; from_past < 8; ++from_past) {
          placed.push_back({memory.place_integers(DType::float32, count, 4 * to_past),
                            memory.place_integers(dtype, count, from_past * item_size(dtype)),
                            dtype, count});
        }
      }
    }
  }
  run(memory, placed, Adders::many, 16);
}

TEST_F(CudaAccumulateTest, no_addition_is_lost_while_others_add) {
  run_onto_one(9, 4095, 4);
  run_onto_one(4, large_count(), 2);
}

}  // namespace
}  // namespace headrace
