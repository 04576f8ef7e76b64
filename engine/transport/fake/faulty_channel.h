#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "transport/channel.h"
#include "transport/fake/fault_plan.h"

namespace headrace {

/// A channel on which the fault plan decides what becomes of each operation. Waits pass unharmed.
class FaultyChannel final : public Channel {
 public:
  FaultyChannel(int source, Channel* channel, FaultPlan plan)
      : source_(source), channel_(channel), plan_(std::move(plan)) {}

  int peer() const override { return channel_->peer(); }
  const std::byte* view(std::size_t offset) const override { return channel_->view(offset); }
  Status get(Stream& stream, std::span<const Piece> pieces) override;
  Status put(Stream& stream, std::span<const Piece> pieces) override;
  Status accumulate(Stream& stream, const AccumulatorRegion& region,
                    std::span<const Addend> addends) override;
  Status signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) override;
  Status wait(Stream& stream, std::size_t local_offset, std::uint64_t at_least,
              std::string_view what) override {
    return channel_->wait(stream, local_offset, at_least, what);
  }
  Status flush(Stream& stream) override;

 private:
  Status apply(LaneOperation operation, const std::function<Status()>& run);

  int source_;
  Channel* channel_;
  FaultPlan plan_;
  std::uint64_t number_ = 0;
  bool stopped_ = false;
  std::function<Status()> held_;  ///< a reordered operation that waits for the next one
};

}  // namespace headrace
