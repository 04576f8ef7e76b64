#include "support/cuda/held_stream.h"

#include <gtest/gtest.h>

#include <atomic>

#include "runtime/cuda/cuda_driver.h"
#include "runtime/cuda/cuda_error.h"

namespace headrace::testing {
namespace {

void expect_ok(const Status& status) { EXPECT_TRUE(status) << status.error().describe(); }

}  // namespace

HeldStream::HeldStream() {
  expect_ok(cuda_status(::cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
  void* word = nullptr;
  expect_ok(cuda_status(::cudaHostAlloc(&word, sizeof *word_, cudaHostAllocMapped), "a word"));
  word_ = static_cast<std::uint64_t*>(word);
  *word_ = 0;
  void* seen = nullptr;
  expect_ok(cuda_status(::cudaHostGetDevicePointer(&seen, word, 0), "the device's view of it"));
  const auto driver = CudaDriver::get();
  EXPECT_TRUE(driver) << driver.error().describe();
  if (driver) {
    expect_ok((*driver)->status(
        (*driver)->stream_wait_value_64(stream_, reinterpret_cast<CUdeviceptr>(seen), 1,
                                        CU_STREAM_WAIT_VALUE_GEQ),
        "hold the stream"));
  }
}

HeldStream::~HeldStream() {
  let_go();
  expect_ok(cuda_status(::cudaStreamSynchronize(stream_), "the stream"));
  expect_ok(cuda_status(::cudaStreamDestroy(stream_), "the stream"));
  expect_ok(cuda_status(::cudaFreeHost(word_), "the word"));
}

void HeldStream::let_go() { std::atomic_ref(*word_).store(1, std::memory_order_release); }

}  // namespace headrace::testing
