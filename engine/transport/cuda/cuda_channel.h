#pragma once

#include <cstddef>
#include <span>

#include "runtime/cuda/cuda_driver.h"
#include "runtime/cuda/stream_monitor.h"
#include "transport/cuda/device_copies.h"
#include "transport/mapped_channel.h"

namespace headrace {

/// What the channels of one rank share. Pointers outlive the channels.
struct CudaEndpoint {
  const CudaDriver* driver = nullptr;
  const Liveness* liveness = nullptr;
  StreamMonitor* monitor = nullptr;
  CopyChoice copies;
  int kernel_blocks = 1;  ///< of an accumulation
  int device = 0;         ///< of this rank
  std::size_t control_bytes = 0;
  std::size_t memory_bytes = 0;         ///< control memory included; device memory is the rest
  std::byte* control = nullptr;         ///< this rank's, as the host sees it
  std::byte* device_control = nullptr;  ///< and as its device does
};

/// A channel to a peer whose control memory the host and the device of this rank see, and whose
/// device memory its device does. On streams of the device parameters move by copy engine or, where
/// the pieces are small, by one short kernel; gradients are added by the source's kernel; signals
/// are values written and waited for by the streams themselves. On streams of the host only control
/// memory can be reached, on those of the device only the rest, but for signals. A place elsewhere
/// is an operation error: a device that touches one loses all that its process has on it.
class CudaChannel final : public Channel {
 public:
  /// `control` is the channel of the host to the peer's control memory; `device_control` that
  /// memory as this rank's device sees it, `data` the peer's device memory.
  CudaChannel(const CudaEndpoint* endpoint, const MappedChannel& control, std::byte* device_control,
              std::byte* data)
      : endpoint_(endpoint), control_(control), device_control_(device_control), data_(data) {}

  int peer() const override { return control_.peer(); }
  const std::byte* view(std::size_t offset) const override {
    return offset < endpoint_->control_bytes ? device_control_ + offset : device_address(offset);
  }
  Status get(Stream& stream, std::span<const Piece> pieces) override;
  Status put(Stream& stream, std::span<const Piece> pieces) override;
  Status accumulate(Stream& stream, const AccumulatorRegion& region,
                    std::span<const Addend> addends) override;
  Status signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) override;
  Status wait(Stream& stream, std::size_t local_offset, std::uint64_t at_least,
              std::string_view what) override;
  Status flush(Stream& stream) override;

 private:
  std::byte* device_address(std::size_t offset) const {
    return data_ + (offset - endpoint_->control_bytes);
  }
  /// That a stream of the host is to reach control memory alone.
  Status check_control(std::span<const Piece> pieces) const;
  /// That a stream of the device is to reach device memory alone.
  Status check_data(std::size_t offset, std::size_t bytes) const;
  Status check_signal(std::size_t offset) const;
  /// Between the pieces' places here and at the peer.
  Status copy(Stream& stream, std::span<const Piece> pieces, bool to_peer) const;

  const CudaEndpoint* endpoint_;
  MappedChannel control_;
  std::byte* device_control_;
  std::byte* data_;
};

}  // namespace headrace
