#include "plan/packed_output.h"

#include <algorithm>

#include "plan/address_map.h"
#include "plan/shard_layout.h"

namespace headrace {

PackedOutput::PackedOutput(const GroupSpec& group, int world_size) {
  const AddressMap map(group, world_size);
  elements_ = map.accumulator_bytes() / sizeof(float);
  blocks_.reserve(group.parameters.size());
  for (std::size_t parameter = 0; parameter < group.parameters.size(); ++parameter) {
    const ParameterSpec& spec = group.parameters[parameter];
    blocks_.push_back(
        {.position = map.accumulator_offset(parameter) / sizeof(float),
         .elements = static_cast<std::size_t>(ShardLayout(spec, world_size).padded_elements()),
         .real = static_cast<std::size_t>(spec.rows * spec.row_elements)});
  }
}

std::vector<PackedPiece> PackedOutput::pieces(Stretch stretch) const {
  std::vector<PackedPiece> pieces;
  auto block =
      std::partition_point(blocks_.begin(), blocks_.end(), [&stretch](const Block& candidate) {
        return candidate.position + candidate.elements <= stretch.begin;
      });
  for (; block != blocks_.end() && block->position < stretch.end; ++block) {
    const std::size_t begin = std::max(stretch.begin, block->position);
    const std::size_t end = std::min(stretch.end, block->position + block->elements);
    if (begin < end) {
      pieces.push_back({.parameter = static_cast<std::uint32_t>(block - blocks_.begin()),
                        .first = begin - block->position,
                        .elements = end - begin,
                        .position = begin});
    }
  }
  return pieces;
}

std::vector<RankRun> PackedOutput::runs(const PackedPiece& piece, int first_rank, int ranks) const {
  const Block& block = blocks_[piece.parameter];
  // Counted from where the first rank's piece starts: real elements up to `left`.
  const std::size_t start = gradient_element(piece, first_rank);
  const std::size_t left = block.real > start ? block.real - start : 0;
  std::vector<RankRun> runs;
  std::size_t whole = 0;
  if (left >= piece.elements) {
    whole = std::min((left - piece.elements) / block.elements + 1, static_cast<std::size_t>(ranks));
    runs.push_back({.skipped = 0, .ranks = whole, .elements = piece.elements});
  }
  if (whole < static_cast<std::size_t>(ranks) && left > whole * block.elements) {
    runs.push_back({.skipped = static_cast<int>(whole),
                    .ranks = 1,
                    .elements = left - whole * block.elements});
  }
  return runs;
}

int PackedOutput::ranks_with(Stretch stretch, int first_rank, int ranks) const {
  int with = 0;
  for (const PackedPiece& piece : pieces(stretch)) {
    for (const RankRun& run : runs(piece, first_rank, ranks)) {
      with = std::max(with, run.skipped + static_cast<int>(run.ranks));
    }
  }
  return with;
}

}  // namespace headrace
