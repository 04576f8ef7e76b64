#include "kernel/cuda/write_scaled.h"

#include "kernel/accumulate.h"
#include "kernel/cuda/twin_memory.h"

namespace headrace {
namespace {

using testing::TwinMemory;

class CudaWriteScaledTest : public testing::DeviceTest {
 protected:
  struct Placed {
    std::size_t to;
    std::size_t from;
    std::size_t count;
  };

  void run(DType dtype, bool add, const std::vector<std::size_t>& counts, std::size_t pasts) {
    TwinMemory memory(next_seed());
    std::vector<Placed> placed;
    for (const std::size_t count : counts) {
      for (std::size_t past = 0; past < pasts; ++past) {
        placed.push_back({memory.place_numbers(dtype, count, past * item_size(dtype)),
                          memory.place_numbers(DType::float32, count, past / 2 * sizeof(float)),
                          count});
        memory.differs_in_nans(placed.back().to, dtype, count);
      }
    }
    memory.mirror();
    const float scale = 0.3F;
    for (const Placed& each : placed) {
      write_scaled(memory.host(each.to), dtype, memory.host<float>(each.from), scale, each.count,
                   add);
      const Status launched =
          launch_write_scaled(handle(), memory.device(each.to), dtype,
                              memory.device<float>(each.from), scale, each.count, add, 16);
      ASSERT_TRUE(launched) << launched.error().describe();
    }
    ASSERT_TRUE(memory.matches()) << to_string(dtype) << (add ? " added" : "");
  }
};

TEST_F(CudaWriteScaledTest, gives_the_hosts_bits_at_all_alignments) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const bool add : {false, true}) {
      run(dtype, add, {0, 1, 7, 31, 4095}, 8);
    }
  }
}

TEST_F(CudaWriteScaledTest, large_ranges_give_the_hosts_bits) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const bool add : {false, true}) {
      run(dtype, add, {large_count()}, 1);
    }
  }
}

}  // namespace
}  // namespace headrace
