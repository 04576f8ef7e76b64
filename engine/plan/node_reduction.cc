#include "plan/node_reduction.h"

#include <algorithm>
#include <utility>

namespace headrace {

NodeReduction::NodeReduction(const ReduceScatterLayout& layout, int rank, ProgramBuilder& builder)
    : layout_(layout),
      topology_(layout.topology()),
      builder_(builder),
      rank_(rank),
      local_(topology_.local_of(rank)),
      pushed_(static_cast<std::size_t>(topology_.local_ranks()), 0) {}

std::vector<std::uint32_t> NodeReduction::reduce(const std::vector<OwnedSum>& owned,
                                                 const Strided& destination, bool finish,
                                                 std::vector<std::uint32_t> after) {
  after_ = std::move(after);
  written_.clear();
  const int local_ranks = topology_.local_ranks();
  const auto of = [&owned](int local) -> const OwnedSum& {
    return owned[static_cast<std::size_t>(local)];
  };
  std::size_t chunks = 0;
  for (const OwnedSum& one : owned) {
    chunks = std::max(chunks, layout_.chunks(one.stretch));
  }
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    for (int step = 1; step < local_ranks; ++step) {
      const int owner = (local_ + step) % local_ranks;
      if (chunk < layout_.chunks(of(owner).stretch)) {
        push(owner, of(owner), chunk);
      }
    }
    if (chunk < layout_.chunks(of(local_).stretch)) {
      sum(of(local_), chunk, destination, finish);
    }
  }
  return written_;
}

void NodeReduction::end() {
  // The last credits are for the next call.
  for (int owner = 0; owner < topology_.local_ranks(); ++owner) {
    const std::uint32_t chunks = pushed_[static_cast<std::size_t>(owner)];
    if (chunks > 0) {
      builder_.expect(peer(owner), layout_.signals().slot_free(owner), chunks);
    }
  }
}

void NodeReduction::push(int owner, const OwnedSum& owned, std::size_t chunk) {
  const std::uint32_t pushed = pushed_[static_cast<std::size_t>(owner)]++;
  const auto slots = static_cast<std::uint32_t>(layout_.options().staging_slots);
  const SignalId slot_free = layout_.signals().slot_free(owner);
  if (pushed == 0) {
    builder_.wait_back(Lane::local, peer(owner), slot_free, 1);
  } else if (pushed >= slots) {
    builder_.wait(Lane::local, peer(owner), slot_free, pushed - slots + 1);
  }
  const Stretch part = layout_.chunk(owned.stretch, chunk);
  for (const PackedPiece& piece : layout_.output().pieces(part)) {
    for (const RankRun& run : layout_.output().runs(piece, owned.first_rank, owned.ranks)) {
      builder_.add(
          {.kind = OpKind::copy,
           .lane = Lane::local,
           .destination = layout_.staged(owner, local_, slot(pushed), run.skipped, part, piece),
           .sources = {gradient(piece, run, owned.first_rank)},
           .rows = run.ranks,
           .elements = run.elements});
    }
  }
  builder_.raise(OpKind::signal, Lane::local, peer(owner), layout_.signals().pushed(local_));
}

void NodeReduction::sum(const OwnedSum& owned, std::size_t chunk, const Strided& destination,
                        bool finish) {
  const int local_ranks = topology_.local_ranks();
  for (int other = 0; other < local_ranks; ++other) {
    if (other != local_) {
      builder_.wait(Lane::local, peer(other), layout_.signals().pushed(other), summed_ + 1);
    }
  }
  const Stretch part = layout_.chunk(owned.stretch, chunk);
  for (const PackedPiece& piece : layout_.output().pieces(part)) {
    for (const RankRun& run : layout_.output().runs(piece, owned.first_rank, owned.ranks)) {
      sum_run(piece, run, owned, part, destination, finish);
    }
  }
  for (int step = 1; step < local_ranks; ++step) {
    const int other = (local_ + step) % local_ranks;
    builder_.raise(OpKind::credit, Lane::local, peer(other), layout_.signals().slot_free(local_));
  }
  ++summed_;
}

void NodeReduction::sum_run(const PackedPiece& piece, const RankRun& run, const OwnedSum& owned,
                            Stretch chunk, const Strided& destination, bool finish) {
  std::vector<Strided> sources;
  sources.reserve(static_cast<std::size_t>(topology_.local_ranks()));
  for (int other = 0; other < topology_.local_ranks(); ++other) {
    if (other != local_) {
      sources.push_back(layout_.staged(local_, other, slot(summed_), run.skipped, chunk, piece));
    }
  }
  sources.push_back(gradient(piece, run, owned.first_rank));
  Strided rows = destination;
  rows.place.offset += static_cast<std::size_t>(run.skipped) * rows.pitch +
                       (piece.position - owned.stretch.begin) * sizeof(float);
  written_ = {builder_.add({.kind = OpKind::sum,
                            .lane = Lane::local,
                            .after = std::exchange(after_, {}),
                            .destination = rows,
                            .sources = std::move(sources),
                            .rows = run.ranks,
                            .elements = run.elements,
                            .finish = finish})};
}

Strided NodeReduction::gradient(const PackedPiece& piece, const RankRun& run,
                                int first_rank) const {
  const PackedOutput& output = layout_.output();
  const DType dtype = layout_.options().gradients[piece.parameter];
  return {.place = {.local = local_,
                    .region = Region::gradient,
                    .index = piece.parameter,
                    .offset = output.gradient_element(piece, first_rank + run.skipped) *
                              item_size(dtype)},
          .pitch = output.gradient_pitch(piece) * item_size(dtype),
          .dtype = dtype};
}

std::size_t NodeReduction::slot(std::uint32_t chunk) const {
  return chunk % static_cast<std::size_t>(layout_.options().staging_slots);
}

int NodeReduction::peer(int local) const {
  return topology_.rank_of(topology_.node_of(rank_), local);
}

}  // namespace headrace
