#include "plan/reduce_scatter_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"

namespace headrace {
namespace {

constexpr int k_most_passes = 4;
// The outbox and the spare belong to one of two calls in flight.
constexpr std::size_t k_call_banks = 2;
// Chunks begin at multiples of 16 bytes in every dtype's slot.
constexpr std::size_t k_chunk_granule = 8;

Status validate(const GroupSpec& group, const ReduceScatterOptions& options) {
  if (options.gradients.size() != group.parameters.size()) {
    return operation_error(fmt::format("group {} has {} parameters, but {} gradient dtypes",
                                       group.name, group.parameters.size(),
                                       options.gradients.size()));
  }
  if (options.passes > k_most_passes) {
    return operation_error(fmt::format("a reduce-scatter has at most {} passes, not {}",
                                       k_most_passes, options.passes));
  }
  if (options.staging_slots < 1 || options.chunk_bytes < 1) {
    return operation_error(
        fmt::format("a reduce-scatter needs a staging slot and chunks of a byte, not {} slots and "
                    "chunks of {} bytes",
                    options.staging_slots, options.chunk_bytes));
  }
  return {};
}

}  // namespace

Result<ReduceScatterLayout> ReduceScatterLayout::make(const Topology& topology,
                                                      const GroupSpec& group,
                                                      const ReduceScatterOptions& options) {
  HEADRACE_TRY(validate(group, options));
  HEADRACE_TRY_ASSIGN(
      const WavePlan waves,
      WavePlan::make(
          topology, {.width = options.wave_width == 0 ? topology.local_ranks() : options.wave_width,
                     .transfers = options.transfers,
                     .passes = options.passes}));
  return ReduceScatterLayout(group, options, waves);
}

ReduceScatterLayout::ReduceScatterLayout(const GroupSpec& group,
                                         const ReduceScatterOptions& options, const WavePlan& waves)
    : options_(options),
      waves_(waves),
      output_(group, waves.topology().world_size()),
      sub_slices_(output_.elements(), waves.topology().local_ranks(), options.passes),
      signals_(waves.topology(), options.first_signal) {
  const bool one_node = topology().nodes() == 1;
  staged_rows_ = one_node ? 1 : static_cast<std::size_t>(topology().local_ranks());
  for (const DType dtype : options.gradients) {
    staged_item_ = std::max(staged_item_, item_size(dtype));
  }
  const std::size_t all =
      round_up(one_node ? output_.elements() : sub_slices_.part_capacity(), k_chunk_granule);
  const bool nobody_pushes = topology().local_ranks() == 1;
  const std::size_t asked =
      round_up(options.chunk_bytes / (staged_rows_ * staged_item_), k_chunk_granule);
  chunk_elements_ = nobody_pushes ? all : std::min(std::max(asked, k_chunk_granule), all);
  outbox_blocks_ = waves.outbox_blocks(options.mode);
}

std::size_t ReduceScatterLayout::block_bytes() const {
  return static_cast<std::size_t>(topology().local_ranks()) * row_bytes();
}

std::size_t ReduceScatterLayout::pusher_bytes() const {
  return staged_rows_ * chunk_elements_ * staged_item_;
}

ScheduleShape ReduceScatterLayout::shape() const {
  ScheduleShape shape;
  const auto set = [&shape](Region region, std::size_t bytes, std::size_t banks) {
    shape.regions[static_cast<std::size_t>(region)] = {.bytes = bytes, .banks = banks};
  };
  const auto local_ranks = static_cast<std::size_t>(topology().local_ranks());
  set(Region::staging,
      static_cast<std::size_t>(options_.staging_slots) * (local_ranks - 1) * pusher_bytes(), 1);
  if (topology().nodes() > 1) {
    set(Region::outbox, static_cast<std::size_t>(outbox_blocks_) * block_bytes(), k_call_banks);
    set(Region::inbox, static_cast<std::size_t>(waves_.generations()) * local_ranks * block_bytes(),
        1);
    set(Region::spare, static_cast<std::size_t>(options_.passes) * block_bytes(), k_call_banks);
  }
  shape.signals = signals_.end();
  return shape;
}

std::size_t ReduceScatterLayout::chunks(Stretch stretch) const {
  return stretch.elements() == 0 ? 0 : (stretch.elements() - 1) / chunk_elements_ + 1;
}

Stretch ReduceScatterLayout::chunk(Stretch stretch, std::size_t index) const {
  const std::size_t begin = stretch.begin + index * chunk_elements_;
  return {.begin = begin, .end = std::min(begin + chunk_elements_, stretch.end)};
}

Strided ReduceScatterLayout::staged(int owner, int pusher, std::size_t slot, int row, Stretch chunk,
                                    const PackedPiece& piece) const {
  const auto others = static_cast<std::size_t>(topology().local_ranks() - 1);
  const auto index = static_cast<std::size_t>(pusher < owner ? pusher : pusher - 1);
  const std::size_t pitch = chunk_elements_ * staged_item_;
  return {.place = {.local = owner,
                    .region = Region::staging,
                    .offset = (slot * others + index) * pusher_bytes() +
                              static_cast<std::size_t>(row) * pitch +
                              (piece.position - chunk.begin) * staged_item_},
          .pitch = pitch,
          .dtype = options_.gradients[piece.parameter]};
}

Strided ReduceScatterLayout::block(int local, Region region, std::size_t index, int row,
                                   std::size_t element) const {
  return {.place = {.local = local,
                    .region = region,
                    .offset = index * block_bytes() + static_cast<std::size_t>(row) * row_bytes() +
                              element * sizeof(float)},
          .pitch = row_bytes(),
          .dtype = DType::float32};
}

Strided ReduceScatterLayout::outbox(int local, int block_index, int row,
                                    std::size_t element) const {
  return block(local, Region::outbox, static_cast<std::size_t>(block_index), row, element);
}

Strided ReduceScatterLayout::spare(int local, int pass, int row, std::size_t element) const {
  return block(local, Region::spare, static_cast<std::size_t>(pass), row, element);
}

Strided ReduceScatterLayout::inbox(int local, int generation, int sub_slice, int row,
                                   std::size_t element) const {
  const int index = generation * topology().local_ranks() + sub_slice;
  return block(local, Region::inbox, static_cast<std::size_t>(index), row, element);
}

}  // namespace headrace
