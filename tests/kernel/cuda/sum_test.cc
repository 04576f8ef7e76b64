#include "kernel/cuda/sum.h"

#include <functional>

#include "kernel/cuda/twin_memory.h"

namespace headrace {
namespace {

using testing::TwinMemory;

constexpr DType k_half = DType::bfloat16;
constexpr DType k_full = DType::float32;

// The dtypes of k sources: all bf16, all fp32, or taking turns.
std::vector<std::vector<DType>> mixes(std::size_t k) {
  std::vector<DType> turns;
  for (std::size_t s = 0; s < k; ++s) {
    turns.push_back(s % 2 == 0 ? k_half : k_full);
  }
  return {std::vector<DType>(k, k_half), std::vector<DType>(k, k_full), turns};
}

class CudaSumTest : public testing::DeviceTest {
 protected:
  struct Placed {
    std::size_t to;
    std::size_t to_pitch;
    std::vector<std::size_t> from;
    std::vector<std::size_t> pitches;
    std::vector<DType> dtypes;
    std::size_t rows;
    std::size_t elements;
    float scale;
    bool add;
  };

  static constexpr std::size_t k_many = 10;

  // Rows `to_past` elements past an aligned address, those of source s `from_past(s)` elements past
  // one; `gap` elements between rows.
  template <class FromPast>
  static Placed place(TwinMemory& memory, const std::vector<DType>& dtypes, std::size_t to_past,
                      FromPast from_past, std::size_t rows, std::size_t elements, std::size_t gap,
                      bool add) {
    Placed job = {.dtypes = dtypes, .rows = rows, .elements = elements, .add = add};
    const std::size_t row = elements + gap;
    job.to_pitch = row * sizeof(float);
    const auto array = [&](DType dtype, std::size_t past) {
      return dtypes.size() < k_many
                 ? memory.place_numbers(dtype, rows * row, past * item_size(dtype))
                 : memory.place_ordinary(dtype, rows * row, past * item_size(dtype));
    };
    job.to = array(k_full, to_past);
    for (std::size_t s = 0; s < dtypes.size(); ++s) {
      job.pitches.push_back(row * item_size(dtypes[s]));
      job.from.push_back(array(dtypes[s], from_past(s)));
    }
    job.scale = add ? -0.3F : 0.125F;
    memory.differs_in_nans(job.to, k_full, rows * row);
    return job;
  }

  static SumJob job_of(const Placed& placed, const std::function<void*(std::size_t)>& at) {
    SumJob job = {.to = static_cast<float*>(at(placed.to)),
                  .to_pitch = placed.to_pitch,
                  .rows = placed.rows,
                  .elements = placed.elements,
                  .scale = placed.scale,
                  .add = placed.add};
    for (std::size_t s = 0; s < placed.from.size(); ++s) {
      job.sources.push_back({at(placed.from[s]), placed.pitches[s], placed.dtypes[s]});
    }
    return job;
  }

  void run(TwinMemory& memory, const std::vector<Placed>& placed, SumMethod method, int blocks) {
    memory.mirror();
    InlineStream inline_stream;
    for (const Placed& each : placed) {
      const auto host = [&](std::size_t place) { return memory.host(place); };
      const auto device = [&](std::size_t place) { return memory.device(place); };
      ASSERT_TRUE(host_kernels().sum(inline_stream, job_of(each, host)));
      const Status launched = launch_sum(handle(), job_of(each, device), method, blocks);
      ASSERT_TRUE(launched) << launched.error().describe();
    }
    ASSERT_TRUE(memory.matches());
  }
};

std::size_t alike(std::size_t /*source*/) { return 0; }

TEST_F(CudaSumTest, one_to_nine_sources_at_any_address_give_the_hosts_bits) {
  for (std::size_t k = 1; k <= 9; ++k) {
    for (const std::vector<DType>& dtypes : mixes(k)) {
      TwinMemory memory(next_seed());
      std::vector<Placed> placed;
      const auto anywhere = [&](std::size_t s) { return (3 * s + k) % 8; };
      for (const std::size_t elements : {0U, 1U, 7U, 31U, 4095U}) {
        placed.push_back(place(memory, dtypes, k % 4, anywhere, 1, elements, 0, k % 2 == 0));
        placed.push_back(place(memory, dtypes, 0, alike, 1, elements, 0, k % 2 != 0));
      }
      run(memory, placed, SumMethod::plain, 3);
    }
  }
}

TEST_F(CudaSumTest, both_methods_give_the_hosts_bits_for_every_lead) {
  for (const SumMethod method : {SumMethod::plain, SumMethod::bulk}) {
    for (std::size_t past = 0; past < 8; ++past) {
      const auto alike_past = [&](std::size_t) { return past; };
      for (const std::vector<DType>& dtypes : mixes(1 + past)) {
        TwinMemory memory(next_seed());
        std::vector<Placed> placed;
        for (const std::size_t elements : {1U, 7U, 31U, 4095U}) {
          placed.push_back(place(memory, dtypes, past, alike_past, 1, elements, 0, past % 2 == 0));
        }
        run(memory, placed, method, static_cast<int>(1 + past % 3));
      }
    }
  }
}

TEST_F(CudaSumTest, rows_are_summed_and_the_gaps_between_them_left_alone) {
  for (const SumMethod method : {SumMethod::plain, SumMethod::bulk}) {
    for (const bool add : {false, true}) {
      TwinMemory memory(next_seed());
      std::vector<Placed> placed;
      const auto alike_past = [](std::size_t) { return std::size_t{5}; };
      // Elements and gap make a multiple of 8, so that every row is aligned alike.
      placed.push_back(place(memory, mixes(4)[0], 5, alike_past, 7, 1001, 7, add));
      placed.push_back(place(memory, mixes(3)[1], 5, alike_past, 40, 3, 5, add));
      placed.push_back(place(memory, mixes(5)[2], 5, alike_past, 3, 5000, 0, add));
      run(memory, placed, method, 5);
    }
  }
}

TEST_F(CudaSumTest, rows_that_are_not_aligned_alike_are_summed_all_the_same) {
  TwinMemory memory(next_seed());
  const auto anywhere = [](std::size_t s) { return s; };
  std::vector<Placed> placed;
  for (const std::vector<DType>& dtypes : mixes(3)) {
    placed.push_back(place(memory, dtypes, 1, anywhere, 5, 1001, 2, false));
    placed.push_back(place(memory, dtypes, 1, anywhere, 2, 40'001, 0, true));
  }
  run(memory, placed, SumMethod::automatic, 5);
}

TEST_F(CudaSumTest, the_pipeline_goes_round_many_times_in_few_blocks) {
  for (const int blocks : {1, 4}) {
    for (const std::vector<DType>& dtypes : mixes(8)) {
      TwinMemory memory(next_seed());
      run(memory,
          {place(
              memory, dtypes, 3, [](std::size_t) { return 3; }, 1, large_count(), 0, blocks == 1)},
          SumMethod::bulk, blocks);
    }
  }
}

TEST_F(CudaSumTest, a_large_sum_gives_the_hosts_bits_in_a_full_grid) {
  for (const SumMethod method : {SumMethod::plain, SumMethod::bulk, SumMethod::automatic}) {
    TwinMemory memory(next_seed());
    run(memory, {place(memory, mixes(2)[0], 0, alike, 1, large_count(), 0, false)}, method, 264);
  }
}

TEST_F(CudaSumTest, as_many_sources_as_a_launch_holds_are_summed) {
  for (const SumMethod method : {SumMethod::plain, SumMethod::bulk}) {
    TwinMemory memory(next_seed());
    run(memory, {place(memory, mixes(k_max_sum_sources)[2], 0, alike, 1, 2500, 0, false)}, method,
        2);
  }
}

TEST_F(CudaSumTest, no_source_gives_zeros_or_adds_nothing) {
  TwinMemory memory(next_seed());
  const std::vector<Placed> placed = {place(memory, {}, 1, alike, 3, 37, 5, false),
                                      place(memory, {}, 1, alike, 3, 37, 5, true)};
  run(memory, placed, SumMethod::automatic, 4);
}

TEST_F(CudaSumTest, what_a_method_cannot_do_is_an_error) {
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 1024), cudaSuccess);
  SumJob job = {.to = memory, .rows = 1, .elements = 16};
  job.sources = {{reinterpret_cast<std::byte*>(memory) + 514, 0, k_half}};
  const Status unaligned = launch_sum(handle(), job, SumMethod::bulk, 1);
  EXPECT_FALSE(unaligned);
  job.sources.assign(k_max_sum_sources + 1, {memory + 32, 0, k_full});
  const Status many = launch_sum(handle(), job, SumMethod::automatic, 1);
  EXPECT_FALSE(many);
  job.sources.resize(1);
  job.rows = (std::size_t{1} << 32) + 1;
  EXPECT_FALSE(launch_sum(handle(), job, SumMethod::automatic, 1));
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

}  // namespace
}  // namespace headrace
