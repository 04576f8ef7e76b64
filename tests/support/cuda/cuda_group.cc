#include "support/cuda/cuda_group.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/cuda/cuda_error.h"
#include "support/cuda/worlds.h"

namespace headrace::testing {
namespace {

void expect_ok(cudaError_t code, const char* what) {
  const Status status = cuda_status(code, what);
  EXPECT_TRUE(status) << status.error().describe();
}

class DeviceData final : public DataMemory {
 public:
  DeviceData() {
    expect_ok(::cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  }
  ~DeviceData() override {
    for (void* memory : memory_) {
      static_cast<void>(::cudaFree(memory));
    }
    static_cast<void>(::cudaStreamDestroy(stream_));
  }
  DeviceData(const DeviceData&) = delete;
  DeviceData& operator=(const DeviceData&) = delete;

  std::byte* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    expect_ok(::cudaMalloc(&memory, bytes + 1), "allocate");
    memory_.push_back(memory);
    return static_cast<std::byte*>(memory);
  }
  void write(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }

 private:
  void copy(void* to, const void* from, std::size_t bytes) {
    expect_ok(::cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy");
    expect_ok(::cudaStreamSynchronize(stream_), "copy");
  }

  std::vector<void*> memory_;
  cudaStream_t stream_ = nullptr;
};

std::string find_why_no_device() {
  constexpr std::size_t k_longest = 512;
  int pipe[2];
  if (::pipe(pipe) != 0) {
    return "no pipe to ask for a device";
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const auto capability = probe_cuda();
    const std::string reason = capability ? "" : capability.error().message;
    static_cast<void>(::write(pipe[1], reason.data(), std::min(reason.size(), k_longest)));
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::string reason(k_longest, '\0');
  const ssize_t size = ::read(pipe[0], reason.data(), reason.size());
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
  reason.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return reason;
}

}  // namespace

PeerGroup cuda_group(DeviceMemoryKind kind, int world_size, const CudaOptions& options) {
  CudaOptions with_kind = options;
  with_kind.memory = kind;
  OtherTransport other;
  other.name = kind == DeviceMemoryKind::ipc ? "cuda_ipc" : "cuda_mapped";
  other.make = [with_kind](const TransportConfig& config, const Exchange& exchange) {
    return make_cuda_transport(config, exchange, with_kind);
  };
  other.memory = device_memory;
  other.why_not = why_no_device;
  return {.backend = Backend::shm_processes,
          .other = std::make_shared<const OtherTransport>(std::move(other)),
          .world_size = world_size};
}

std::vector<PeerGroup> cuda_groups() {
  std::vector<PeerGroup> groups;
  for (const int world_size : gpu_worlds()) {
    groups.push_back(cuda_group(DeviceMemoryKind::mapped, world_size));
    if (world_size == 2) {
      groups.push_back(cuda_group(DeviceMemoryKind::ipc, world_size));
    }
  }
  return groups;
}

std::unique_ptr<DataMemory> device_memory() { return std::make_unique<DeviceData>(); }

std::string why_no_device() {
  static const std::string reason = find_why_no_device();
  return reason;
}

}  // namespace headrace::testing
