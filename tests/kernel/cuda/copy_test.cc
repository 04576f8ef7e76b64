#include "kernel/cuda/copy.h"

#include <cstring>

#include "kernel/cuda/twin_memory.h"

namespace headrace {
namespace {

using testing::TwinMemory;

class CudaCopyTest : public testing::DeviceTest {
 protected:
  struct Placed {
    std::size_t to;
    std::size_t from;
    std::size_t bytes;
  };

  static Placed place(TwinMemory& memory, std::size_t to_past, std::size_t from_past,
                      std::size_t bytes) {
    return {memory.place(bytes, to_past), memory.place(bytes, from_past), bytes};
  }

  void run(TwinMemory& memory, const std::vector<Placed>& placed, int blocks) {
    memory.mirror();
    std::vector<CopySegment> segments;
    for (const Placed& segment : placed) {
      std::memcpy(memory.host(segment.to), memory.host(segment.from), segment.bytes);
      segments.push_back({memory.device(segment.to), memory.device(segment.from), segment.bytes});
    }
    const Status launched = copy_blocks(handle(), segments, blocks);
    ASSERT_TRUE(launched) << launched.error().describe();
    ASSERT_TRUE(memory.matches());
  }
};

TEST_F(CudaCopyTest, segments_between_any_two_addresses_arrive_and_nothing_else_changes) {
  for (const int blocks : {1, 7}) {
    TwinMemory memory(next_seed());
    std::vector<Placed> placed;
    for (const std::size_t bytes : {0U, 1U, 7U, 31U, 4095U}) {
      for (std::size_t to_past = 0; to_past < 16; ++to_past) {
        for (std::size_t from_past = 0; from_past < 16; ++from_past) {
          placed.push_back(place(memory, to_past, from_past, bytes));
        }
      }
    }
    run(memory, placed, blocks);
  }
}

TEST_F(CudaCopyTest, a_large_segment_arrives) {
  for (const std::size_t from_past : {5U, 9U, 6U, 8U}) {  // aligned alike, by 4, by 1 and by 1
    TwinMemory memory(next_seed());
    run(memory, {place(memory, 5, from_past, large_count())}, 4);
  }
}

TEST_F(CudaCopyTest, no_segment_launches_nothing) {
  EXPECT_TRUE(copy_blocks(handle(), {}, 4));
  EXPECT_EQ(cudaStreamQuery(handle()), cudaSuccess);
}

}  // namespace
}  // namespace headrace
