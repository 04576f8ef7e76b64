#include <cuda_runtime.h>

#include <thread>

#include "kernel/cuda/launch.h"
#include "support/cuda/taken_multiprocessors.h"

namespace headrace::testing {
namespace {

/// In memory of the host that the device sees.
struct Shared {
  int release = 0;
  int running = 0;
};

constexpr unsigned k_pause_ns = 20'000;  ///< between looks at the host's memory

__global__ void hold(Shared* shared, std::int64_t limit_ns) {
  if (threadIdx.x != 0) {
    return;
  }
#if __CUDA_ARCH__ >= 700
  atomicAdd_system(&shared->running, 1);
  std::int64_t begin = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  std::int64_t now = begin;
  while (*static_cast<volatile int*>(&shared->release) == 0 && now - begin < limit_ns) {
    __nanosleep(k_pause_ns);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  }
  atomicSub_system(&shared->running, 1);
#endif
}

__global__ void pass() {}

Status done_by(cudaStream_t stream, Deadline deadline, const char* what) {
  cudaError_t answer = cudaErrorNotReady;
  while ((answer = cudaStreamQuery(stream)) == cudaErrorNotReady) {
    if (deadline.passed()) {
      return operation_error(std::string(what) + " was not done in time");
    }
    std::this_thread::yield();
  }
  return cuda_status(answer, what);
}

}  // namespace

struct TakenMultiprocessors::State {
  ~State() {
    if (shared != nullptr) {
      *static_cast<volatile int*>(&shared->release) = 1;
    }
    for (const cudaStream_t stream : {holding, passing}) {
      if (stream != nullptr) {
        cudaStreamSynchronize(stream);  // the kernels end by themselves
        cudaStreamDestroy(stream);
      }
    }
    if (shared != nullptr) {
      cudaFreeHost(shared);
    }
  }

  int running() const { return *static_cast<volatile int*>(&shared->running); }

  Shared* shared = nullptr;
  cudaStream_t holding = nullptr;
  cudaStream_t passing = nullptr;
  int multiprocessors = 0;
};

Result<TakenMultiprocessors> TakenMultiprocessors::make(Milliseconds limit) {
  auto state = std::make_unique<State>();
  void* memory = nullptr;
  HEADRACE_TRY(cuda_status(cudaHostAlloc(&memory, sizeof(Shared), cudaHostAllocMapped),
                           "memory of the host that the device sees"));
  state->shared = new (memory) Shared();
  for (cudaStream_t* stream : {&state->holding, &state->passing}) {
    HEADRACE_TRY(cuda_status(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "a stream"));
  }
  const Deadline deadline(limit);
  pass<<<1, 1, 0, state->passing>>>();
  HEADRACE_TRY(cuda_status(cudaGetLastError(), "launch of a kernel"));
  HEADRACE_TRY(done_by(state->passing, deadline, "a kernel"));

  HEADRACE_TRY_ASSIGN(state->multiprocessors, device_attribute(cudaDevAttrMultiProcessorCount));
  HEADRACE_TRY_ASSIGN(const int bytes, device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  HEADRACE_TRY(
      cuda_status(cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                  "asking for all shared memory"));
  const auto limit_ns = static_cast<std::int64_t>(limit.count()) * 1'000'000;
  hold<<<static_cast<unsigned>(state->multiprocessors), 32, static_cast<std::size_t>(bytes),
         state->holding>>>(state->shared, limit_ns);
  HEADRACE_TRY(cuda_status(cudaGetLastError(), "launch of a kernel"));
  while (state->running() < state->multiprocessors) {
    if (deadline.passed()) {
      return operation_error(std::to_string(state->running()) + " of " +
                             std::to_string(state->multiprocessors) +
                             " multiprocessors were taken in time");
    }
    std::this_thread::yield();
  }
  return TakenMultiprocessors(std::move(state));
}

bool TakenMultiprocessors::held() const { return state_->running() == state_->multiprocessors; }

Result<bool> TakenMultiprocessors::lets_a_kernel_through(Milliseconds limit) const {
  pass<<<1, 1, 0, state_->passing>>>();
  HEADRACE_TRY(cuda_status(cudaGetLastError(), "launch of a kernel"));
  return static_cast<bool>(done_by(state_->passing, Deadline(limit), "a kernel"));
}

TakenMultiprocessors::TakenMultiprocessors(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
TakenMultiprocessors::TakenMultiprocessors(TakenMultiprocessors&&) noexcept = default;
TakenMultiprocessors::~TakenMultiprocessors() = default;

}  // namespace headrace::testing
