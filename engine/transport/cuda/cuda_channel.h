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
  std::size_t control_bytes = 0;
  std::byte* control = nullptr;         ///< this rank's, as the host sees it
  std::byte* device_control = nullptr;  ///< and as its device does
};

/// A channel to a peer whose control memory the host and the device of this rank see, and whose
/// device memory its device does. On streams of the device parameters move by copy engine or, where
/// the pieces are small, by one short kernel; gradients are added by the source's kernel; signals
/// are values written and waited for by the streams themselves. On streams of the host only control
/// memory can be reached.
class CudaChannel final : public Channel {
 public:
  /// `control` is the channel of the host to the peer's control memory; `device_control` that
  /// memory as this rank's device sees it, `data` the peer's device memory.
  CudaChannel(const CudaEndpoint* endpoint, const MappedChannel& control, std::byte* device_control,
              std::byte* data)
      : endpoint_(endpoint), control_(control), device_control_(device_control), data_(data) {}

  int peer() const override { return control_.peer(); }
  const std::byte* view(std::size_t offset) const override { return device_address(offset); }
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
  /// Whether the pieces lie in control memory; an error where a stream of the host is to reach the
  /// rest.
  Result<bool> in_control(const Stream& stream, std::span<const Piece> pieces) const;
  Status copy(Stream& stream, std::span<const CopySegment> copies) const;

  const CudaEndpoint* endpoint_;
  MappedChannel control_;
  std::byte* device_control_;
  std::byte* data_;
};

}  // namespace headrace
