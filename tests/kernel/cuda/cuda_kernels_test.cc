#include "kernel/cuda/cuda_kernels.h"

#include <cstring>
#include <functional>

#include "kernel/cuda/twin_memory.h"

namespace headrace {
namespace {

using testing::TwinMemory;
using CudaKernelsTest = testing::DeviceTest;

TEST_F(CudaKernelsTest, rows_are_zeroed_and_the_gaps_between_them_left_alone) {
  const Result<CudaKernels> kernels = CudaKernels::create({});
  ASSERT_TRUE(kernels);
  TwinMemory memory(next_seed());
  const struct {
    std::size_t pitch, bytes, rows;
  } shapes[] = {{64, 13, 9}, {100, 100, 4}, {7, 0, 3}, {0, 77, 1}, {1 << 16, 5000, 3}};
  std::vector<std::size_t> places;
  for (const auto& shape : shapes) {
    places.push_back(memory.place(shape.pitch * shape.rows + shape.bytes, 3));
  }
  memory.mirror();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [pitch, bytes, rows] = shapes[i];
    for (std::size_t row = 0; row < rows; ++row) {
      std::memset(memory.host<std::byte>(places[i]) + row * pitch, 0, bytes);
    }
    ASSERT_TRUE(kernels.value().zero(stream(), memory.device(places[i]), pitch, bytes, rows));
  }
  EXPECT_TRUE(memory.matches());
}

TEST_F(CudaKernelsTest, each_kernel_gives_the_hosts_bits_through_the_interface) {
  const Result<CudaKernels> kernels = CudaKernels::create({.max_blocks = 3});
  ASSERT_TRUE(kernels);
  constexpr std::size_t k_count = 1003;
  TwinMemory memory(next_seed());
  const std::size_t cast_to = memory.place(k_count * 2, 2);
  const std::size_t sum_to = memory.place(k_count * 4, 4);
  const std::size_t fold_to = memory.place_numbers(DType::float32, k_count, 8);
  const std::size_t scaled_to = memory.place_numbers(DType::bfloat16, k_count, 6);
  const std::size_t from = memory.place_numbers(DType::float32, k_count, 4);
  memory.differs_in_nans(sum_to, DType::float32, k_count);
  memory.differs_in_nans(fold_to, DType::float32, k_count);
  memory.differs_in_nans(scaled_to, DType::bfloat16, k_count);
  memory.mirror();

  const auto run = [&](const Kernels& with, Stream& on,
                       const std::function<void*(std::size_t)>& at) {
    const auto* source = static_cast<const float*>(at(from));
    SumJob sum = {.to = static_cast<float*>(at(sum_to)), .rows = 1, .elements = k_count};
    sum.sources.assign(2, {source, 0, DType::float32});
    EXPECT_TRUE(with.cast(on, {{at(cast_to), DType::bfloat16, source, DType::float32, k_count}}));
    EXPECT_TRUE(with.sum(on, sum));
    EXPECT_TRUE(with.fold(on, {{static_cast<float*>(at(fold_to)), {source, source}, k_count}}));
    EXPECT_TRUE(with.write_scaled(on, at(scaled_to), DType::bfloat16, source, 3.0F, k_count, true));
  };
  InlineStream inline_stream;
  run(host_kernels(), inline_stream, [&](std::size_t place) { return memory.host(place); });
  run(kernels.value(), stream(), [&](std::size_t place) { return memory.device(place); });
  EXPECT_TRUE(memory.matches());
}

TEST_F(CudaKernelsTest, a_stream_of_the_host_is_refused) {
  const Result<CudaKernels> kernels = CudaKernels::create({});
  ASSERT_TRUE(kernels);
  InlineStream host;
  for (const Status& status :
       {kernels.value().cast(host, {}), kernels.value().sum(host, {}),
        kernels.value().fold(host, {}), kernels.value().zero(host, nullptr, 0, 0, 0),
        kernels.value().write_scaled(host, nullptr, DType::float32, nullptr, 1.0F, 0, false)}) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().scope, Scope::operation);
  }
}

}  // namespace
}  // namespace headrace
