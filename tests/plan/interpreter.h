#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "plan/address_map.h"
#include "plan/schedule.h"
#include "plan/schedule_check.h"
#include "plan/topology.h"

namespace headrace {

using Bytes = std::vector<std::byte>;

/// NaN in every dtype: what nobody has written, and what the caller has taken back.
inline constexpr std::byte k_poison{0xff};

inline float load(const std::byte* from, DType dtype) {
  if (dtype == DType::bfloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof bits);
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// One reduce-scatter with the memory of its callers, all by rank.
struct ReduceScatterCall {
  const Collective* collective = nullptr;
  float alpha = 1;
  bool accumulate = false;
  std::vector<std::vector<Bytes>> gradients;  ///< by parameter; poisoned when consumed
  std::vector<std::vector<float>> outputs;
};

/// Runs successive reduce-scatters of one session on real memory, one operation at a time. Seed 0:
/// each rank in list order, in turn. Else: any lane of any rank, by chance, as soon as its order,
/// `after` and its signals allow.
class Interpreter {
 public:
  Interpreter(const Topology& topology, std::span<ReduceScatterCall> calls, unsigned seed)
      : topology_(topology), calls_(calls), random_(seed), in_list_order_(seed == 0) {
    for (std::size_t region = 0; region < k_regions; ++region) {
      for (const ReduceScatterCall& call : calls) {
        const RegionSize& size = call.collective->shape.regions[region];
        bank_bytes_[region] = std::max(bank_bytes_[region], size.bytes);
        banks_[region] = std::max(banks_[region], size.banks);
      }
    }
    for (int rank = 0; rank < topology.world_size(); ++rank) {
      Rank& state = ranks_.emplace_back();
      for (std::size_t region = 0; region < k_regions; ++region) {
        state.arena[region].assign(bank_bytes_[region] * banks_[region], k_poison);
      }
      state.before.resize(calls.size() + 1);
      for (std::size_t call = 0; call < calls.size(); ++call) {
        const RankProgram& program = this->program(rank, call);
        state.done.emplace_back(program.ops.size(), false);
        state.before[call + 1] = state.before[call];
        for (const SignalTotal& total : program.awaited) {
          state.before[call + 1][total.signal] += total.count;
        }
        for (std::size_t op = 0; op < program.ops.size(); ++op) {
          const std::size_t lane =
              in_list_order_ ? 0 : static_cast<std::size_t>(program.ops[op].lane);
          state.lanes[lane].emplace_back(call, op);
        }
      }
    }
  }

  /// Whether all calls came to their end.
  bool run() {
    std::vector<std::pair<int, std::size_t>> order;
    for (int rank = 0; rank < topology_.world_size(); ++rank) {
      for (std::size_t lane = 0; lane < k_lanes; ++lane) {
        order.emplace_back(rank, lane);
      }
    }
    for (bool progress = true; progress;) {
      progress = false;
      if (!in_list_order_) {
        std::shuffle(order.begin(), order.end(), random_);
      }
      for (std::size_t at = 0; at < order.size(); ++at) {
        const bool enough = !in_list_order_ && at > order.size() / 3;
        if (progress && enough) {
          break;  // the others stand still for a while
        }
        std::size_t steps = in_list_order_ ? SIZE_MAX : 1 + random_() % 20;
        while (steps-- > 0 && step(order[at].first, order[at].second)) {
          progress = true;
        }
      }
    }
    return finished();
  }

 private:
  struct Rank {
    std::array<Bytes, k_regions> arena;
    std::array<std::vector<std::pair<std::size_t, std::size_t>>, k_lanes> lanes;
    std::array<std::size_t, k_lanes> next{};
    std::vector<std::vector<bool>> done;                    ///< by call, by operation
    std::vector<std::map<SignalId, std::uint64_t>> before;  ///< by call
    std::map<SignalId, std::uint64_t> signals;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const RankProgram& program(int rank, std::size_t call) const {
    return calls_[call].collective->programs[static_cast<std::size_t>(rank)];
  }
  bool finished() const {
    for (const Rank& rank : ranks_) {
      for (std::size_t lane = 0; lane < k_lanes; ++lane) {
        if (rank.next[lane] != rank.lanes[lane].size()) {
          return false;
        }
      }
    }
    return true;
  }

  bool step(int rank, std::size_t lane) {
    Rank& state = at(rank);
    if (state.next[lane] == state.lanes[lane].size()) {
      return false;
    }
    const auto [call, position] = state.lanes[lane][state.next[lane]];
    const Op& op = program(rank, call).ops[position];
    for (const std::uint32_t before : op.after) {
      if (!state.done[call][before]) {
        return false;
      }
    }
    if (op.kind == OpKind::wait) {
      const std::size_t back = op.calls_back == 0 ? 0 : op.calls_back - 1;
      if (back <= call &&
          state.signals[op.signal] < state.before[call - back][op.signal] + op.count) {
        return false;
      }
    }
    perform(rank, call, op);
    state.done[call][position] = true;
    ++state.next[lane];
    return true;
  }

  void perform(int rank, std::size_t call, const Op& op) {
    switch (op.kind) {
      case OpKind::wait:
        return;
      case OpKind::signal:
      case OpKind::credit:
        at(op.peer).signals[op.signal] = at(op.peer).before[call][op.signal] + op.count;
        return;
      case OpKind::mark:
        if (op.milestone == Milestone::sources_consumed) {
          for (Bytes& gradient : calls_[call].gradients[static_cast<std::size_t>(rank)]) {
            std::fill(gradient.begin(), gradient.end(), k_poison);
          }
        }
        return;
      default:
        for (std::size_t row = 0; row < op.rows; ++row) {
          move(rank, call, op, row);
        }
    }
  }

  void move(int rank, std::size_t call, const Op& op, std::size_t row) {
    const int destination_rank = op.kind == OpKind::put ? op.peer : rank;
    std::byte* to = start(destination_rank, call, op.destination, row);
    std::vector<const std::byte*> from;
    for (const Strided& source : op.sources) {
      from.push_back(start(rank, call, source, row));
    }
    const std::size_t item = item_size(op.destination.dtype);
    if (op.kind == OpKind::zero) {
      std::memset(to, 0, op.elements * item);
      return;
    }
    if (op.kind == OpKind::put || op.kind == OpKind::copy) {
      std::memcpy(to, from.front(), op.elements * item);
      return;
    }
    const bool goes_on = op.finish && op.sources.front() == op.destination;
    for (std::size_t element = 0; element < op.elements; ++element) {
      const auto value = [&](std::size_t source) {
        const DType dtype = op.sources[source].dtype;
        return load(from[source] + element * item_size(dtype), dtype);
      };
      std::byte* cell = to + element * sizeof(float);
      const std::size_t first = goes_on ? 1 : 0;
      float sum = value(first);
      for (std::size_t source = first + 1; source < from.size(); ++source) {
        sum += value(source);
      }
      if (op.finish) {
        sum *= calls_[call].alpha;
        if (goes_on || calls_[call].accumulate) {
          sum = load(cell, DType::float32) + sum;
        }
      }
      std::memcpy(cell, &sum, sizeof sum);
    }
  }

  /// `rank` is the one that names the place, or the receiver of a put.
  std::byte* start(int rank, std::size_t call, const Strided& strided, std::size_t row) {
    const Place& place = strided.place;
    const auto owner =
        static_cast<std::size_t>(topology_.rank_of(topology_.node_of(rank), place.local));
    const std::size_t offset = place.offset + row * strided.pitch;
    if (place.region == Region::gradient) {
      return calls_[call].gradients[owner][place.index].data() + offset;
    }
    if (place.region == Region::output) {
      return reinterpret_cast<std::byte*>(calls_[call].outputs[owner].data()) + offset;
    }
    const auto region = static_cast<std::size_t>(place.region);
    return ranks_[owner].arena[region].data() + (call % banks_[region]) * bank_bytes_[region] +
           offset;
  }

  Topology topology_;
  std::span<ReduceScatterCall> calls_;
  std::mt19937 random_;
  bool in_list_order_;
  std::array<std::size_t, k_regions> bank_bytes_{};
  std::array<std::size_t, k_regions> banks_{};
  std::vector<Rank> ranks_;
};

}  // namespace headrace
