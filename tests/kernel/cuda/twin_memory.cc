#include "kernel/cuda/twin_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "kernel/support.h"
#include "runtime/cuda/cuda_error.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace::testing {
namespace {

constexpr std::size_t k_line = 256;
/// Of the whole program: a kernel that hangs must not hang its caller.
constexpr unsigned k_watchdog_seconds = 300;

class Watchdog final : public ::testing::Environment {
 public:
  void SetUp() override { alarm(k_watchdog_seconds); }
};
const auto* const k_watchdog = ::testing::AddGlobalTestEnvironment(new Watchdog);

void randomise(std::byte* bytes, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < count; i += sizeof(std::uint32_t)) {
    const auto word = static_cast<std::uint32_t>(random());
    std::memcpy(bytes + i, &word, std::min(sizeof(word), count - i));
  }
}

}  // namespace

void DeviceTest::SetUp() {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) {
    GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(found);
  }
  const char* repeat = std::getenv("HEADRACE_TEST_SEED");
  seed_ = repeat != nullptr ? static_cast<std::uint32_t>(std::strtoul(repeat, nullptr, 10))
                            : std::random_device{}();
  RecordProperty("seed", std::to_string(seed_));
  std::printf("HEADRACE_TEST_SEED=%u\n", seed_);
  ASSERT_EQ(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), cudaSuccess);
  stream_ = CudaStream::borrow(handle_, {});
}

void DeviceTest::TearDown() {
  if (handle_ != nullptr) {
    EXPECT_EQ(cudaStreamDestroy(handle_), cudaSuccess);
  }
}

Stream& DeviceTest::stream() { return *stream_; }

std::size_t DeviceTest::large_count() {
  return std::getenv("HEADRACE_TEST_SMALL") != nullptr ? 20'003 : (1U << 20U) + 3;
}

TwinMemory::~TwinMemory() { cudaFree(device_); }

std::size_t TwinMemory::place(std::size_t bytes, std::size_t past) {
  // The bytes before it are a guard: a line of them at least.
  const std::size_t begin = bytes_.size() / k_line * k_line + 2 * k_line + past;
  const std::size_t old = bytes_.size();
  bytes_.resize(begin + bytes);
  randomise(bytes_.data() + old, bytes_.size() - old, seed_++);
  return begin;
}

std::size_t TwinMemory::place_numbers(DType dtype, std::size_t count, std::size_t past) {
  const std::size_t begin = place(count * item_size(dtype), past);
  fill(bytes_.data() + begin, count * item_size(dtype), dtype, seed_++);
  return begin;
}

template <class Draw>
std::size_t TwinMemory::place_drawn(DType dtype, std::size_t count, std::size_t past, Draw draw) {
  const std::size_t begin = place(count * item_size(dtype), past);
  std::mt19937 random(seed_++);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(draw(random));
    const auto upper = static_cast<std::uint16_t>(bits >> 16);
    std::byte* at = bytes_.data() + begin + i * item_size(dtype);
    dtype == DType::float32 ? std::memcpy(at, &bits, sizeof(bits))
                            : std::memcpy(at, &upper, sizeof(upper));
  }
  return begin;
}

std::size_t TwinMemory::place_ordinary(DType dtype, std::size_t count, std::size_t past) {
  return place_drawn(dtype, count, past, [](std::mt19937& random) {
    return static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31F;
  });
}

std::size_t TwinMemory::place_integers(DType dtype, std::size_t count, std::size_t past) {
  return place_drawn(dtype, count, past, [](std::mt19937& random) {
    return static_cast<float>(random() % 17U) - 8.0F;
  });
}

void TwinMemory::mirror() {
  place(0, 0);                            // the guard behind the last place
  bytes_.resize(bytes_.size() + k_line);  // room to align the host's side like the device's
  const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
  const std::size_t shift = (k_line - address % k_line) % k_line;
  std::memmove(bytes_.data() + shift, bytes_.data(), bytes_.size() - k_line);
  host_ = bytes_.data() + shift;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_), bytes_.size() - k_line), cudaSuccess);
  upload();
}

void TwinMemory::upload() {
  ASSERT_EQ(cudaMemcpy(device_, host_, bytes_.size() - k_line, cudaMemcpyHostToDevice),
            cudaSuccess);
  // The copy of ordinary memory may still be under way, and other streams do not wait for it.
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

void TwinMemory::differs_in_nans(std::size_t place, DType dtype, std::size_t count) {
  lenient_.push_back({place, dtype, count});
}

::testing::AssertionResult TwinMemory::matches() {
  const std::size_t size = bytes_.size() - k_line;
  if (const Status done = cuda_status(cudaDeviceSynchronize(), "waiting for the device"); !done) {
    return ::testing::AssertionFailure() << done.error().describe();
  }
  std::vector<std::byte> got(size);
  const Status copied = cuda_status(cudaMemcpy(got.data(), device_, size, cudaMemcpyDeviceToHost),
                                    "copying from the device");
  if (!copied) {
    return ::testing::AssertionFailure() << copied.error().describe();
  }
  for (const Numbers& numbers : lenient_) {
    const std::size_t item = item_size(numbers.dtype);
    for (std::size_t i = 0; i < numbers.count; ++i) {
      std::byte* ours = got.data() + numbers.place + i * item;
      std::byte* theirs = host_ + numbers.place + i * item;
      std::uint32_t a = 0;
      std::uint32_t b = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&a) + 4 - item, ours, item);
      std::memcpy(reinterpret_cast<std::byte*>(&b) + 4 - item, theirs, item);
      if (same(std::bit_cast<float>(a), std::bit_cast<float>(b))) {
        std::memcpy(ours, theirs, item);
      }
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    if (got[i] != host_[i]) {
      return ::testing::AssertionFailure()
             << "byte " << i << " of " << size << " is " << static_cast<int>(got[i])
             << " on the device and " << static_cast<int>(host_[i]) << " on the host";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace headrace::testing
