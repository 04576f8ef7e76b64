#include "transport/cuda/cuda_transport.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "kernel/cuda/load_kernels.h"
#include "runtime/cuda/cuda_error.h"
#include "runtime/cuda/current_device.h"
#include "transport/cuda/cuda_channel.h"
#include "transport/cuda/device_checks.h"
#include "transport/cuda/registered_memory.h"
#include "transport/host_wiring.h"
#include "transport/rail_channel.h"

namespace headrace {
namespace {

constexpr Capability k_capability{
    .get = true, .put = true, .accumulate = true, .processes = true, .device_memory = true};
constexpr std::size_t k_page_bytes = 4096;
// A stream's event is polled by the host: signals that the device writes wake nobody.
constexpr Milliseconds k_slice{1};

std::size_t control_bytes(const TransportConfig& config) {
  return round_up(std::max(config.control_bytes, k_page_bytes), k_page_bytes);
}

/// The memories of one rank as this process sees them.
struct RankMemory {
  std::shared_ptr<RegisteredMemory> control;
  std::shared_ptr<DeviceMemory> data;
};

/// What streams touch, and all streams that did: by rank, empty where out of reach.
struct Held {
  std::vector<RankMemory> memories;
  std::vector<std::shared_ptr<CUstream_st>> streams;
};

/// What a rank brings to wiring.
struct Prepared {
  SharedMemory control;
  DeviceHandle handle;
  RankMemory memory;
};

Result<Prepared> prepare(const TransportConfig& config, const CudaOptions& options) {
  HEADRACE_TRY(probe_cuda(options));
  HEADRACE_TRY(load_kernels(config.bootstrap));
  const std::size_t control = control_bytes(config);
  HEADRACE_TRY_ASSIGN(
      SharedMemory shared,
      SharedMemory::create(fmt::format("headrace-{}", config.identity.rank), control));
  RankMemory memory;
  HEADRACE_TRY_ASSIGN(memory.control, RegisteredMemory::make(shared.arena, control));
  DeviceHandle handle;
  if (config.memory_bytes > control) {
    HEADRACE_TRY_ASSIGN(memory.data,
                        DeviceMemory::create(config.memory_bytes - control, options.memory, &handle,
                                             config.bootstrap));
  }
  return Prepared{
      .control = std::move(shared), .handle = std::move(handle), .memory = std::move(memory)};
}

class CudaTransport final : public Transport {
 public:
  CudaTransport(const TransportConfig& config, const CudaOptions& options,
                std::vector<RankMemory> memories, std::unique_ptr<Liveness> liveness,
                const CudaDriver* driver, const CudaKernels& kernels, int device)
      : options_(options),
        held_(new Held{.memories = std::move(memories), .streams = {}}),
        mine_(&held_->memories[static_cast<std::size_t>(config.identity.rank)]),
        liveness_(std::move(liveness)),
        waiter_(liveness_.get(), wait_config(config), config.interrupted),
        monitor_(liveness_.get(), wait_config(config)),
        kernels_(kernels),
        endpoint_{.driver = driver,
                  .liveness = liveness_.get(),
                  .monitor = &monitor_,
                  .copies = options.copies,
                  .kernel_blocks = options.kernels.max_blocks,
                  .device = device,
                  .control_bytes = control_bytes(config),
                  .memory_bytes = std::max(config.memory_bytes, control_bytes(config)),
                  .control = mine_->control->host(),
                  .device_control = mine_->control->device()} {
    for (int peer = 0; peer < config.identity.world_size; ++peer) {
      channels_.push_back(make_channel(config, peer));
    }
  }
  ~CudaTransport() override;
  CudaTransport(const CudaTransport&) = delete;
  CudaTransport& operator=(const CudaTransport&) = delete;

  Capability capability() const override { return k_capability; }
  std::byte* at(std::size_t offset) override {
    return offset < endpoint_.control_bytes ? endpoint_.control + offset
           : mine_->data == nullptr ? nullptr
                                    : mine_->data->data() + (offset - endpoint_.control_bytes);
  }
  std::shared_ptr<const void> memory_owner() const override { return mine_->data; }
  Channel& channel(int peer) override { return *channels_[static_cast<std::size_t>(peer)]; }
  Result<std::unique_ptr<Stream>> make_stream() override {
    if (std::cmp_equal(held_->streams.size(), options_.streams)) {
      return operation_error(fmt::format(
          "this rank has made all of its {} streams (CudaOptions::streams)", options_.streams));
    }
    const CurrentDevice device(endpoint_.device);
    // Events may outlive the transport.
    const auto check = [weak = std::weak_ptr(liveness_)]() -> Status {
      const auto liveness = weak.lock();
      return liveness == nullptr
                 ? session_error(
                       "an event is waited for after the transport of its stream has gone")
                 : liveness->check_pages();
    };
    HEADRACE_TRY_ASSIGN(auto stream, CudaStream::make(options_.priority, check));
    held_->streams.push_back(stream->handle());
    return std::unique_ptr<Stream>(std::move(stream));
  }
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override {
    const CurrentDevice device(endpoint_.device);
    void* memory = nullptr;
    HEADRACE_TRY(cuda_status(::cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)),
                             fmt::format("cannot allocate {} bytes of device memory", bytes)));
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [](std::byte* allocated) {
      static_cast<void>(::cudaFree(allocated));
    });
  }
  const Kernels& kernels() const override { return kernels_; }
  Liveness& liveness() override { return *liveness_; }
  Waiter& waiter() override { return waiter_; }

 private:
  static WaitConfig wait_config(const TransportConfig& config) {
    WaitConfig wait = config.wait;
    wait.slice = std::min(wait.slice, k_slice);
    return wait;
  }

  std::unique_ptr<Channel> make_channel(const TransportConfig& config, int peer) {
    const Reach reach = config.reach(peer);
    if (reach == Reach::none) {
      return std::make_unique<NoChannel>(config.identity.rank, peer);
    }
    const RankMemory& theirs = held_->memories[static_cast<std::size_t>(peer)];
    auto channel = std::make_unique<CudaChannel>(
        &endpoint_,
        MappedChannel(config.identity.rank, peer, endpoint_.control, theirs.control->host(),
                      liveness_.get(), &waiter_),
        theirs.control->device(), theirs.data == nullptr ? nullptr : theirs.data->data());
    if (reach == Reach::rail) {
      return std::make_unique<RailChannel>(std::move(channel));
    }
    return channel;
  }

  CudaOptions options_;
  // In the order in which they may go last: threads look at the memories.
  std::unique_ptr<Held> held_;
  RankMemory* mine_;
  std::shared_ptr<Liveness> liveness_;
  Waiter waiter_;
  StreamMonitor monitor_;
  CudaKernels kernels_;
  CudaEndpoint endpoint_;
  std::vector<std::unique_ptr<Channel>> channels_;  ///< by rank
  int owner_pid_ = ::getpid();
};

// What streams still do touches memories of this rank and of its peers.
CudaTransport::~CudaTransport() {
  bool passed = false;
  if (owner_pid_ == ::getpid()) {
    monitor_.abandon();
    passed = all_passed(held_->streams, Deadline(options_.drain));
  }
  if (!passed) {
    // The streams do not end, or a forked child has none of the device's state.
    (void)held_.release();  // NOLINT: left to the end of the process
  }
}

/// The peer's memories, mapped.
Result<RankMemory> open_peer(const TransportConfig& config, const HostLink& link) {
  const std::size_t control = control_bytes(config);
  // A thread's too, whose own view is registered already, and not for as long as this one needs it.
  HEADRACE_TRY_ASSIGN(Arena arena, Arena::map(link.memory, control));
  RankMemory memory;
  HEADRACE_TRY_ASSIGN(memory.control,
                      RegisteredMemory::make(std::make_shared<Arena>(std::move(arena)), control));
  if (config.memory_bytes > control) {
    HEADRACE_TRY_ASSIGN(memory.data,
                        DeviceMemory::open(link.device, config.memory_bytes - control));
  }
  return memory;
}

/// The transport of a rank that has `mine` and what wiring brought.
Result<std::unique_ptr<Transport>> wired(const TransportConfig& config, const CudaOptions& options,
                                         const RankMemory& mine, std::vector<HostLink> links) {
  std::vector<RankMemory> memories(static_cast<std::size_t>(config.identity.world_size));
  memories[static_cast<std::size_t>(config.identity.rank)] = mine;
  std::vector<LivenessPeer> peers;
  for (const int rank : config.within_reach()) {
    HostLink& link = links[static_cast<std::size_t>(rank)];
    auto memory = open_peer(config, link);
    if (!memory) {
      return session_error(
          fmt::format("the memory of rank {} is out of reach: {}", rank, memory.error().message));
    }
    memories[static_cast<std::size_t>(rank)] = std::move(memory).value();
    peers.push_back({.rank = rank,
                     .page = reinterpret_cast<LivenessPage*>(
                         memories[static_cast<std::size_t>(rank)].control->host()),
                     .death = std::move(link.death)});
  }
  HEADRACE_TRY_ASSIGN(const CudaDriver* driver, CudaDriver::get());
  int device = 0;
  HEADRACE_TRY(cuda_status(::cudaGetDevice(&device), "cannot ask for the current device"));
  HEADRACE_TRY_ASSIGN(const CudaKernels kernels, CudaKernels::create(options.kernels));
  HEADRACE_TRY_ASSIGN(
      auto liveness,
      Liveness::start(config.identity.rank, reinterpret_cast<LivenessPage*>(mine.control->host()),
                      std::move(peers), config.liveness));
  return std::unique_ptr<Transport>(std::make_unique<CudaTransport>(
      config, options, std::move(memories), std::move(liveness), driver, kernels, device));
}

}  // namespace

Result<Capability> probe_cuda(const CudaOptions& options) {
  HEADRACE_TRY(check_device());
  HEADRACE_TRY(check_stream_memory_operations());
  HEADRACE_TRY(check_hardware_queues(options.streams));
  return k_capability;
}

Result<std::unique_ptr<Transport>> make_cuda_transport(const TransportConfig& config,
                                                       const Exchange& exchange,
                                                       const CudaOptions& options) {
  auto prepared = prepare(config, options);
  auto links = join_host(config, exchange,
                         prepared ? Result<HostOffer>(HostOffer{.memory = &prepared->control,
                                                                .device = &prepared->handle})
                                  : prepared.error());
  auto transport = links ? wired(config, options, prepared->memory, std::move(links).value())
                         : Result<std::unique_ptr<Transport>>(links.error());
  if (!transport && prepared) {
    Liveness::refuse(config.identity.rank,
                     reinterpret_cast<LivenessPage*>(prepared->memory.control->host()),
                     transport.error());
  }
  return transport;
}

}  // namespace headrace
