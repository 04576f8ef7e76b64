// What is too large for 32 bits, and what is next to nothing, thousands of times.

#include <cstring>
#include <numeric>

#include "kernel/accumulate.h"
#include "kernel/cuda/accumulate.h"
#include "kernel/cuda/cast.h"
#include "kernel/cuda/copy.h"
#include "kernel/cuda/fold.h"
#include "kernel/cuda/sum.h"
#include "kernel/cuda/twin_memory.h"
#include "kernel/cuda/zero.h"
#include "kernel/kernels.h"

namespace headrace {
namespace {

using testing::TwinMemory;

constexpr std::size_t k_4_gib = std::size_t{1} << 32;
constexpr int k_blocks = 264;

/// Memory of the device, every byte with the same value, of which small parts are read.
class LargeMemory {
 public:
  LargeMemory(std::size_t bytes, int value) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(memory_, value, bytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~LargeMemory() { cudaFree(memory_); }
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;

  template <class T = std::byte>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + offset);
  }
  template <class T>
  std::vector<T> values(std::size_t offset, std::size_t count) const {
    std::vector<T> result(count);
    EXPECT_EQ(cudaMemcpy(result.data(), at(offset), count * sizeof(T), cudaMemcpyDefault),
              cudaSuccess);
    return result;
  }

 private:
  void* memory_ = nullptr;
};

class ExtremesTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    std::size_t free = 0;
    std::size_t total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    large_ = free > 5 * k_4_gib && large_count() > (1 << 20);
  }
  bool large() const { return large_; }
  void pass() { ASSERT_EQ(cudaStreamSynchronize(handle()), cudaSuccess); }

 private:
  bool large_ = false;
};

#define SKIP_UNLESS_LARGE() \
  if (!large()) GTEST_SKIP() << "needs 20 GiB of free device memory, and time"

// Around every place where 32 bits end, whatever they count.
constexpr std::size_t k_window = 1 << 12;
constexpr std::size_t k_ends[] = {0, k_4_gib / 4, k_4_gib / 2, k_4_gib - k_window};

TEST_F(ExtremesTest, a_copy_of_more_than_4_GiB_arrives_and_ends_where_it_should) {
  SKIP_UNLESS_LARGE();
  constexpr std::size_t k_bytes = k_4_gib + 5;
  const LargeMemory from(k_bytes + k_window, 0x5A);
  const LargeMemory to(k_bytes + k_window, 0);
  // A different byte every so often tells places apart that are a multiple of 4 GiB away.
  for (const std::size_t mark : {std::size_t{7}, k_4_gib / 2 + 1, k_4_gib - 1, k_4_gib + 1}) {
    ASSERT_EQ(cudaMemset(from.at(mark + 3), static_cast<int>(mark % 251), 1), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<CopySegment> segments{{to.at(1), from.at(3), k_bytes}};
  ASSERT_TRUE(copy_blocks(handle(), segments, k_blocks));
  pass();
  for (const std::size_t end : k_ends) {
    EXPECT_EQ(to.values<std::byte>(end + 1, k_window - 1),
              from.values<std::byte>(end + 3, k_window - 1))
        << "at " << end;
  }
  EXPECT_EQ(to.values<std::byte>(0, 1)[0], std::byte{0});
  EXPECT_EQ(to.values<std::byte>(1 + k_4_gib, 5), from.values<std::byte>(3 + k_4_gib, 5));
  EXPECT_EQ(to.values<std::byte>(1 + k_bytes, 64), std::vector<std::byte>(64));
}

TEST_F(ExtremesTest, sums_casts_and_additions_into_more_than_4_GiB_reach_its_end) {
  SKIP_UNLESS_LARGE();
  constexpr std::size_t k_count = k_4_gib / sizeof(float) + 3;
  constexpr int k_byte = 0x3F;  // 0x3F3F3F3F in fp32 and 0x3F3F in bf16: both near three quarters
  const LargeMemory halves(k_count * 2, k_byte);
  const LargeMemory to((k_count + k_window) * sizeof(float), k_byte);
  const float before = to.values<float>(0, 1)[0];
  const float half = [] {
    const std::uint32_t bits = 0x3F3F0000;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }();
  const auto expect_all = [&](float wanted, const char* what) {
    pass();
    for (const std::size_t end : k_ends) {
      EXPECT_EQ(to.values<float>(end, k_window / 8), std::vector<float>(k_window / 8, wanted))
          << what << " at " << end;
    }
    const std::vector<float> tail = to.values<float>((k_count - 3) * sizeof(float), 4);
    EXPECT_EQ(tail, (std::vector<float>{wanted, wanted, wanted, before})) << what;
  };
  const std::vector<AccumulateJob> additions{
      {to.at<float>(0), halves.at(0), DType::bfloat16, k_count}};
  ASSERT_TRUE(launch_accumulate(handle(), additions, Adders::one, k_blocks));
  expect_all(before + half, "one adder");
  ASSERT_TRUE(launch_accumulate(handle(), additions, Adders::many, k_blocks));
  expect_all(before + half + half, "many adders");
  const std::vector<CastJob> casts{
      {to.at(0), DType::float32, halves.at(0), DType::bfloat16, k_count}};
  ASSERT_TRUE(launch_cast(handle(), casts, k_blocks));
  expect_all(half, "a cast");
  for (const SumMethod method : {SumMethod::plain, SumMethod::bulk}) {
    SumJob sum{.to = to.at<float>(0), .rows = 1, .elements = k_count, .scale = 0.5F};
    sum.sources.assign(4, {halves.at(0), 0, DType::bfloat16});
    ASSERT_TRUE(launch_sum(handle(), sum, method, k_blocks));
    expect_all(2 * half, method == SumMethod::plain ? "a plain sum" : "a bulk sum");
  }
}

TEST_F(ExtremesTest, rows_further_apart_than_2_GiB_are_zeroed_and_summed) {
  SKIP_UNLESS_LARGE();
  constexpr std::size_t k_pitch = k_4_gib / 2 + 256;
  constexpr std::size_t k_bytes = 4'000;
  const LargeMemory memory(2 * k_pitch + k_bytes + k_window, 0x3F);
  const float before = memory.values<float>(0, 1)[0];
  SumJob sum{.to = memory.at<float>(0), .to_pitch = k_pitch, .rows = 3, .elements = k_bytes / 4};
  sum.sources.assign(2, {memory.at(k_bytes), k_pitch, DType::float32});
  sum.sources[1].address = memory.at(k_bytes);
  sum.sources[1].pitch = 0;
  const Status summed = launch_sum(handle(), sum, SumMethod::plain, k_blocks);
  ASSERT_TRUE(summed) << summed.error().describe();
  pass();
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(memory.values<float>(row * k_pitch, k_bytes / 4),
              std::vector<float>(k_bytes / 4, 2 * before));
  }
  const Status zeroed = launch_zero(handle(), memory.at(0), k_pitch, k_bytes, 3);
  ASSERT_TRUE(zeroed) << zeroed.error().describe();
  pass();
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(memory.values<std::byte>(row * k_pitch, k_bytes), std::vector<std::byte>(k_bytes));
    EXPECT_EQ(memory.values<float>(row * k_pitch + k_bytes, 1)[0], before) << "beside row " << row;
  }
}

TEST_F(ExtremesTest, thousands_of_jobs_of_an_element_or_none_do_what_the_host_does) {
  constexpr std::size_t k_jobs = 5'000;
  TwinMemory memory(next_seed());
  struct Placed {
    std::size_t copied, copied_from, cast, added, folded, from;
    std::size_t count;
  };
  std::vector<Placed> placed;
  for (std::size_t i = 0; i < k_jobs; ++i) {
    const std::size_t count = i % 3;
    const auto place = [&] { return memory.place_integers(DType::float32, count, i % 4 * 4); };
    placed.push_back({memory.place(count, i % 16), memory.place(count, i % 7), place(), place(),
                      place(), place(), count});
  }
  memory.mirror();
  std::vector<CopySegment> copies;
  std::vector<CastJob> casts;
  std::vector<AccumulateJob> additions;
  std::vector<FoldJob> folds;
  for (const Placed& job : placed) {
    std::memcpy(memory.host(job.copied), memory.host(job.copied_from), job.count);
    copies.push_back({memory.device(job.copied), memory.device(job.copied_from), job.count});
    casts.push_back({memory.device(job.cast), DType::bfloat16, memory.device(job.from),
                     DType::float32, job.count});
    additions.push_back(
        {memory.device<float>(job.added), memory.device(job.from), DType::float32, job.count});
    folds.push_back(
        {memory.device<float>(job.folded), {memory.device<float>(job.from)}, job.count});
    InlineStream host;
    ASSERT_TRUE(host_kernels().cast(host, {{memory.host(job.cast), DType::bfloat16,
                                            memory.host(job.from), DType::float32, job.count}}));
    accumulate(memory.host<float>(job.added), memory.host(job.from), DType::float32, job.count);
    accumulate(memory.host<float>(job.folded), memory.host(job.from), DType::float32, job.count);
  }
  ASSERT_TRUE(copy_blocks(handle(), copies, 3));
  ASSERT_TRUE(launch_cast(handle(), casts, 3));
  ASSERT_TRUE(launch_accumulate(handle(), additions, Adders::many, 3));
  ASSERT_TRUE(launch_fold(handle(), folds, 3));
  EXPECT_TRUE(memory.matches());
}

TEST_F(ExtremesTest, many_rows_of_one_element_are_summed) {
  constexpr std::size_t k_rows = 100'003;
  TwinMemory memory(next_seed());
  const std::size_t to = memory.place_integers(DType::float32, k_rows, 4);
  const std::size_t from = memory.place_integers(DType::bfloat16, 3 * k_rows, 2);
  memory.mirror();
  const auto job = [&](float* rows, const void* source) {
    SumJob sum{.to = rows, .to_pitch = 4, .rows = k_rows, .elements = 1, .add = true};
    sum.sources.assign(2, {source, 6, DType::bfloat16});
    return sum;
  };
  InlineStream host;
  ASSERT_TRUE(host_kernels().sum(host, job(memory.host<float>(to), memory.host(from))));
  const Status launched = launch_sum(handle(), job(memory.device<float>(to), memory.device(from)),
                                     SumMethod::automatic, k_blocks);
  ASSERT_TRUE(launched) << launched.error().describe();
  EXPECT_TRUE(memory.matches());
}

}  // namespace
}  // namespace headrace
