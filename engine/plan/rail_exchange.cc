#include "plan/rail_exchange.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

// Calls in flight: outbox and spare have so many banks.
constexpr std::uint32_t k_call_banks = 2;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

RailExchange::RailExchange(const ReduceScatterLayout& layout, int rank, ProgramBuilder& builder)
    : layout_(layout),
      topology_(layout.topology()),
      waves_(layout.waves()),
      signals_(layout.signals()),
      square_(layout.square()),
      builder_(builder),
      reduction_(layout, rank, builder),
      node_(topology_.node_of(rank)),
      local_(topology_.local_of(rank)),
      summed_(at(waves_.remote_blocks())),
      own_summed_(at(waves_.options().passes)),
      emptied_(at(layout.outbox_blocks())),
      landed_(at(waves_.total_waves())) {}

void RailExchange::run() {
  wait_for_banks();
  read_ahead();
  for (int pass = 0; pass < waves_.options().passes; ++pass) {
    read_own(pass);
  }
  mark_when_consumed();
  for (int index = 0; index < waves_.total_waves(); ++index) {
    const Wave& current = wave_at(index);
    if (is_alone() && !ends_pass(index) && ends_pass(index + 1)) {
      copy_own(index + 1);
    }
    for (int i = 0; i < current.rounds; ++i) {
      const Round& round = waves_.rounds()[at(current.first_round + i)];
      for (int transfer = 0; transfer < round.transfers; ++transfer) {
        send(index, round.first + transfer);
      }
      read_ahead();
      mark_when_consumed();
      if (i == 0 && index > 0) {
        give_back(index - 1);
      }
      for (int transfer = 0; transfer < round.transfers; ++transfer) {
        receive(index, round.first + transfer);
      }
    }
    if (current.rounds == 0 && index > 0) {
      give_back(index - 1);
    }
    if (!is_alone() && ends_pass(index)) {
      copy_own(index);
    }
    zero_stale(index);
    share(index);
    land(index);
  }
  give_back_all();
  reduction_.end();
}

// --- Read phase ---

void RailExchange::wait_for_banks() {
  if (is_alone()) {
    const int destination = square_.destination(node_, topology_.nodes() - 1);
    builder_.wait_back(Lane::local, rail_peer(destination), signals_.inbox_free(destination),
                       k_call_banks);
  } else {
    const int other = others().front();
    builder_.wait_back(Lane::local, local_peer(other), signals_.wave_landed(other), k_call_banks);
  }
}

void RailExchange::read_ahead() {
  while (partials_read_ < waves_.remote_blocks() &&
         partials_read_ < partials_sent_ + layout_.outbox_blocks()) {
    read(partials_read_++);
  }
}

void RailExchange::read(int partial) {
  const int remote = topology_.nodes() - 1;
  const int contributor = partial % remote + 1;
  const int block = partial % layout_.outbox_blocks();
  summed_[at(partial)] = reduction_.reduce(
      owned(contributor, partial / remote, square_.destination(node_, contributor)),
      layout_.outbox(local_, block, 0, 0), /*finish=*/false, emptied_[at(block)]);
}

void RailExchange::read_own(int pass) {
  own_summed_[at(pass)] = reduction_.reduce(owned(topology_.nodes(), pass, node_),
                                            layout_.spare(local_, pass, 0, 0), /*finish=*/false);
}

void RailExchange::mark_when_consumed() {
  if (partials_read_ == waves_.remote_blocks() && !consumed_) {
    builder_.mark(Lane::local, Milestone::sources_consumed);
    consumed_ = true;
  }
}

// --- Network phase ---

void RailExchange::send(int wave, int contributor) {
  const int pass = pass_of(wave);
  const int destination = square_.destination(node_, contributor);
  const int peer = rail_peer(destination);
  const SignalId inbox_free = signals_.inbox_free(destination);
  if (wave < waves_.generations()) {
    builder_.wait_back(Lane::network, peer, inbox_free, 1);
  } else {
    builder_.wait(Lane::network, peer, inbox_free, credits(pass, contributor));
  }
  const int sub_slice = square_.sub_slice(local_, contributor);
  const Stretch part = layout_.sub_slices().part(sub_slice, pass);
  const int rows =
      layout_.output().ranks_with(part, topology_.rank_of(destination, 0), topology_.local_ranks());
  if (rows > 0) {
    const int index = partial(pass, contributor);
    const int block = index % layout_.outbox_blocks();
    emptied_[at(block)] = {builder_.add(
        {.kind = OpKind::put,
         .lane = Lane::network,
         .after = summed_[at(index)],
         .destination = layout_.inbox(local_, waves_.generation(wave), sub_slice, 0, 0),
         .sources = {layout_.outbox(local_, block, 0, 0)},
         .rows = at(rows),
         .elements = part.elements(),
         .peer = peer})};
  }
  ++partials_sent_;
  builder_.raise(OpKind::signal, Lane::network, peer, signals_.arrived(node_));
}

void RailExchange::receive(int wave, int contributor) {
  const int source = square_.source(node_, contributor);
  builder_.wait(Lane::network, rail_peer(source), signals_.arrived(source),
                static_cast<std::uint32_t>(pass_of(wave) + 1));
}

void RailExchange::copy_own(int wave) {
  const int pass = pass_of(wave);
  const int sub_slice = square_.sub_slice(local_, topology_.nodes());
  const Stretch part = layout_.sub_slices().part(sub_slice, pass);
  const int rows =
      layout_.output().ranks_with(part, topology_.rank_of(node_, 0), topology_.local_ranks());
  if (rows == 0) {
    return;
  }
  builder_.add({.kind = OpKind::copy,
                .lane = Lane::network,
                .after = own_summed_[at(pass)],
                .destination = layout_.inbox(local_, waves_.generation(wave), sub_slice, 0, 0),
                .sources = {layout_.spare(local_, pass, 0, 0)},
                .rows = at(rows),
                .elements = part.elements()});
}

void RailExchange::zero_stale(int wave) {
  // All of a block, whatever part it is for: a later pass may find it unfilled again, and have real
  // rows where this one has none.
  for (const int residue : waves_.stale_residues(wave)) {
    const int sub_slice = (local_ + residue) % topology_.local_ranks();
    builder_.add({.kind = OpKind::zero,
                  .lane = Lane::network,
                  .destination = layout_.inbox(local_, waves_.generation(wave), sub_slice, 0, 0),
                  .rows = at(topology_.local_ranks()),
                  .elements = layout_.sub_slices().part_capacity()});
  }
}

void RailExchange::share(int wave) {
  for (const int other : others()) {
    builder_.raise(OpKind::signal, Lane::network, local_peer(other), signals_.wave_whole(local_));
  }
  for (const int other : others()) {
    builder_.wait(Lane::network, local_peer(other), signals_.wave_whole(other),
                  static_cast<std::uint32_t>(wave + 1));
  }
}

void RailExchange::land(int wave) {
  for (int sub_slice = 0; sub_slice < topology_.local_ranks(); ++sub_slice) {
    land(wave, sub_slice);
  }
  for (const int other : others()) {
    builder_.raise(OpKind::credit, Lane::network, local_peer(other), signals_.wave_landed(local_));
  }
  landed_[at(wave)] = builder_.last(Lane::network);
}

void RailExchange::land(int wave, int sub_slice) {
  const Stretch part = layout_.sub_slices().part(sub_slice, pass_of(wave));
  const bool is_first = wave % waves_a_pass() == 0;
  for (const PackedPiece& piece : layout_.output().pieces(part)) {
    for (const RankRun& run : layout_.output().runs(piece, topology_.rank_of(node_, local_), 1)) {
      const Strided output{.place = {.local = local_,
                                     .region = Region::output,
                                     .offset = piece.position * sizeof(float)},
                           .pitch = run.elements * sizeof(float)};
      std::vector<Strided> sources;
      sources.reserve(at(topology_.local_ranks() + 1));
      if (!is_first) {
        sources.push_back(output);
      }
      for (int local = 0; local < topology_.local_ranks(); ++local) {
        sources.push_back(layout_.inbox(local, waves_.generation(wave), sub_slice, local_,
                                        piece.position - part.begin));
      }
      builder_.add({.kind = OpKind::land,
                    .lane = Lane::network,
                    .destination = output,
                    .sources = std::move(sources),
                    .rows = 1,
                    .elements = run.elements,
                    .finish = true});
    }
  }
}

// --- Giving back ---

void RailExchange::give_back(int wave) {
  const int next = wave + waves_.generations();
  if (next < waves_.total_waves() && wave_at(next).rounds > 0) {
    give_back(next, wait_for_landings(wave));
  }
}

void RailExchange::give_back_all() {
  Positions after = wait_for_landings(waves_.total_waves() - 1);
  for (int wave = 0; wave < waves_.generations(); ++wave) {
    give_back(wave, std::exchange(after, {}));
  }
  const int last = topology_.nodes() - 1;
  const bool confirms_last = is_alone() && wave_of(0, last) >= waves_.generations();
  if (confirms_last) {
    builder_.raise(OpKind::credit, Lane::complete, rail_peer(square_.source(node_, last)),
                   signals_.inbox_free(node_));
  }
  for (int contributor = 1; contributor <= last; ++contributor) {
    const int destination = square_.destination(node_, contributor);
    const int extra = confirms_last && contributor == last ? 1 : 0;
    builder_.expect(rail_peer(destination), signals_.inbox_free(destination),
                    static_cast<std::uint32_t>(waves_.options().passes + extra));
  }
}

void RailExchange::give_back(int next, Positions after) {
  const Wave& writers = wave_at(next);
  const int end = std::min(writers.first + writers.contributors, topology_.nodes());
  for (int contributor = writers.first; contributor < end; ++contributor) {
    const int source = square_.source(node_, contributor);
    builder_.raise(OpKind::credit, Lane::complete, rail_peer(source), signals_.inbox_free(node_),
                   std::exchange(after, {}));
  }
}

std::vector<std::uint32_t> RailExchange::wait_for_landings(int wave) {
  Positions after = landed_[at(wave)];
  for (const int other : others()) {
    builder_.wait(Lane::complete, local_peer(other), signals_.wave_landed(other),
                  static_cast<std::uint32_t>(wave + 1), std::exchange(after, {}));
  }
  return after;
}

// --- Names and numbers ---

int RailExchange::partial(int pass, int contributor) const {
  return pass * (topology_.nodes() - 1) + contributor - 1;
}

std::vector<OwnedSum> RailExchange::owned(int contributor, int pass, int destination) const {
  std::vector<OwnedSum> owned;
  for (int local = 0; local < topology_.local_ranks(); ++local) {
    owned.push_back(
        {.stretch = layout_.sub_slices().part(square_.sub_slice(local, contributor), pass),
         .first_rank = topology_.rank_of(destination, 0),
         .ranks = topology_.local_ranks()});
  }
  return owned;
}

std::uint32_t RailExchange::credits(int pass, int contributor) const {
  std::uint32_t credits = 0;
  for (int earlier = 0; earlier <= pass; ++earlier) {
    if (wave_of(earlier, contributor) >= waves_.generations()) {
      ++credits;
    }
  }
  return credits;
}

int RailExchange::wave_of(int pass, int contributor) const {
  return pass * waves_a_pass() + (contributor - 1) / waves_.options().width;
}

const Wave& RailExchange::wave_at(int wave) const {
  return waves_.waves()[at(wave % waves_a_pass())];
}

std::vector<int> RailExchange::others() const {
  std::vector<int> others;
  for (int step = 1; step < topology_.local_ranks(); ++step) {
    others.push_back((local_ + step) % topology_.local_ranks());
  }
  return others;
}

}  // namespace headrace
