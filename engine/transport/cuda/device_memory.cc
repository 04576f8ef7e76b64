#include "transport/cuda/device_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "base/checked_math.h"
#include "runtime/cuda/cuda_driver.h"
#include "runtime/cuda/cuda_error.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace {
namespace {

constexpr const char* k_zero = "cannot zero device memory";

Result<CUmemAllocationProp> properties() {
  int device = 0;
  HEADRACE_TRY(cuda_status(::cudaGetDevice(&device), "cannot ask for the current device"));
  CUmemAllocationProp result{};
  result.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  result.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  result.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return result;
}

/// Physical memory at an address range of its own.
class MappedMemory final : public DeviceMemory {
 public:
  ~MappedMemory() override {
    if (mapped_) {
      driver_->mem_unmap(address_, bytes_);
    }
    if (address_ != 0) {
      driver_->mem_address_free(address_, bytes_);
    }
    if (memory_ != 0) {
      driver_->mem_release(memory_);
    }
  }

  static Result<std::shared_ptr<DeviceMemory>> create(std::size_t bytes, DeviceHandle* handle) {
    HEADRACE_TRY_ASSIGN(const CudaDriver* driver, CudaDriver::get());
    HEADRACE_TRY_ASSIGN(const CUmemAllocationProp wanted, properties());
    HEADRACE_TRY_ASSIGN(auto memory, prepare(driver, wanted, bytes));
    HEADRACE_TRY(driver->status(
        driver->mem_create(&memory->memory_, memory->bytes_, &wanted, 0),
        fmt::format("cannot reserve {} bytes of device memory that peers can map", bytes)));
    int fd = -1;
    HEADRACE_TRY(driver->status(
        driver->mem_export(&fd, memory->memory_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cannot make a descriptor of device memory"));
    handle->fd = Fd(fd);
    HEADRACE_TRY(memory->map(wanted));
    return std::shared_ptr<DeviceMemory>(std::move(memory));
  }

  static Result<std::shared_ptr<DeviceMemory>> open(const Fd& fd, std::size_t bytes) {
    HEADRACE_TRY_ASSIGN(const CudaDriver* driver, CudaDriver::get());
    HEADRACE_TRY_ASSIGN(const CUmemAllocationProp wanted, properties());
    HEADRACE_TRY_ASSIGN(auto memory, prepare(driver, wanted, bytes));
    HEADRACE_TRY(driver->status(
        driver->mem_import(&memory->memory_,
                           reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.get())),
                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cannot import a peer's device memory"));
    HEADRACE_TRY(memory->map(wanted));
    return std::shared_ptr<DeviceMemory>(std::move(memory));
  }

  std::byte* data() const override { return reinterpret_cast<std::byte*>(address_); }

 private:
  MappedMemory(const CudaDriver* driver, std::size_t bytes) : driver_(driver), bytes_(bytes) {}

  /// With an address range and no memory yet.
  static Result<std::unique_ptr<MappedMemory>> prepare(const CudaDriver* driver,
                                                       const CUmemAllocationProp& wanted,
                                                       std::size_t bytes) {
    std::size_t granularity = 0;
    HEADRACE_TRY(driver->status(driver->mem_get_allocation_granularity(
                                    &granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                                "cannot ask for the granularity of device memory"));
    std::unique_ptr<MappedMemory> memory(new MappedMemory(driver, round_up(bytes, granularity)));
    HEADRACE_TRY(driver->status(
        driver->mem_address_reserve(&memory->address_, memory->bytes_, granularity, 0, 0),
        fmt::format("cannot reserve addresses for {} bytes of device memory", bytes)));
    return memory;
  }

  Status map(const CUmemAllocationProp& wanted) {
    HEADRACE_TRY(driver_->status(driver_->mem_map(address_, bytes_, 0, memory_, 0),
                                 "cannot map device memory"));
    mapped_ = true;
    const CUmemAccessDesc access{.location = wanted.location,
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return driver_->status(
        driver_->mem_set_access(address_, bytes_, &access, 1),
        "this device cannot reach the memory (for a peer's: there is no peer access between the "
        "two)");
  }

  const CudaDriver* driver_;
  std::size_t bytes_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  bool mapped_ = false;
};

class OwnAllocation final : public DeviceMemory {
 public:
  explicit OwnAllocation(void* data) : data_(data) {}
  ~OwnAllocation() override { static_cast<void>(::cudaFree(data_)); }
  OwnAllocation(const OwnAllocation&) = delete;
  OwnAllocation& operator=(const OwnAllocation&) = delete;

  std::byte* data() const override { return static_cast<std::byte*>(data_); }

  static Result<std::shared_ptr<DeviceMemory>> create(std::size_t bytes, DeviceHandle* handle) {
    void* data = nullptr;
    HEADRACE_TRY(cuda_status(::cudaMalloc(&data, bytes),
                             fmt::format("cannot allocate {} bytes of device memory", bytes)));
    auto memory = std::make_shared<OwnAllocation>(data);
    cudaIpcMemHandle_t ipc;
    static_assert(sizeof ipc <= DeviceHandle::k_opaque_bytes);
    HEADRACE_TRY(cuda_status(::cudaIpcGetMemHandle(&ipc, data),
                             "cannot make a CUDA IPC handle of device memory"));
    std::memcpy(handle->opaque.data(), &ipc, sizeof ipc);
    return std::shared_ptr<DeviceMemory>(std::move(memory));
  }

 private:
  void* data_;
};

class PeerAllocation final : public DeviceMemory {
 public:
  explicit PeerAllocation(void* data) : data_(data) {}
  ~PeerAllocation() override { static_cast<void>(::cudaIpcCloseMemHandle(data_)); }
  PeerAllocation(const PeerAllocation&) = delete;
  PeerAllocation& operator=(const PeerAllocation&) = delete;

  std::byte* data() const override { return static_cast<std::byte*>(data_); }

  static Result<std::shared_ptr<DeviceMemory>> open(const DeviceHandle& handle) {
    cudaIpcMemHandle_t ipc;
    std::memcpy(&ipc, handle.opaque.data(), sizeof ipc);
    void* data = nullptr;
    HEADRACE_TRY(
        cuda_status(::cudaIpcOpenMemHandle(&data, ipc, cudaIpcMemLazyEnablePeerAccess),
                    "cannot open a peer's device memory by its CUDA IPC handle (ranks that are "
                    "threads of one process need mapped memory)"));
    return std::shared_ptr<DeviceMemory>(std::make_shared<PeerAllocation>(data));
  }

 private:
  void* data_;
};

Result<bool> offers_mapped() {
  HEADRACE_TRY_ASSIGN(const CudaDriver* driver, CudaDriver::get());
  HEADRACE_TRY_ASSIGN(const bool mapping,
                      driver->offers(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
  HEADRACE_TRY_ASSIGN(
      const bool descriptors,
      driver->offers(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
  return mapping && descriptors;
}

}  // namespace

Result<std::shared_ptr<DeviceMemory>> DeviceMemory::create(std::size_t bytes, DeviceMemoryKind kind,
                                                           DeviceHandle* handle,
                                                           Milliseconds limit) {
  if (kind == DeviceMemoryKind::automatic) {
    HEADRACE_TRY_ASSIGN(const bool mapped, offers_mapped());
    kind = mapped ? DeviceMemoryKind::mapped : DeviceMemoryKind::ipc;
  }
  HEADRACE_TRY_ASSIGN(auto memory, kind == DeviceMemoryKind::mapped
                                       ? MappedMemory::create(bytes, handle)
                                       : OwnAllocation::create(bytes, handle));
  // On a stream of its own: others of the device may wait for what comes only after this.
  HEADRACE_TRY_ASSIGN(const auto stream, CudaStream::make(StreamPriority::high, {}));
  HEADRACE_TRY(
      cuda_status(::cudaMemsetAsync(memory->data(), 0, bytes, stream->handle().get()), k_zero));
  HEADRACE_TRY_ASSIGN(Event zeroed, stream->record());
  if (Status status = zeroed.wait(Deadline(limit)); !status) {
    return session_error(fmt::format("{}: {}", k_zero, status.error().message));
  }
  return memory;
}

Result<std::shared_ptr<DeviceMemory>> DeviceMemory::open(const DeviceHandle& handle,
                                                         std::size_t bytes) {
  return handle.fd.valid() ? MappedMemory::open(handle.fd, bytes) : PeerAllocation::open(handle);
}

}  // namespace headrace
