#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::model {

/// What an exploration found. `violation` is empty when every reachable state kept every promise;
/// otherwise `trace` is a shortest way to the first broken one, a move a line.
struct Outcome {
  std::string violation;
  std::string trace;
  std::size_t states = 0;
};

/// The states found so far, in the order in which they were found. A state is compared by its
/// bytes.
template <typename State>
class StateSet {
  static_assert(std::has_unique_object_representations_v<State>);

 public:
  StateSet() : table_(k_first_size, k_empty) {}

  std::size_t size() const { return states_.size(); }
  const State& operator[](std::size_t index) const { return states_[index]; }

  /// True if the state is new; it then has the index size() - 1.
  bool insert(const State& state) {
    if (2 * states_.size() >= table_.size()) {
      grow();
    }
    std::uint32_t& place = find(state);
    if (place != k_empty) {
      return false;
    }
    place = static_cast<std::uint32_t>(states_.size());
    states_.push_back(state);
    return true;
  }

 private:
  static constexpr std::size_t k_first_size = 1024;
  static constexpr std::uint32_t k_empty = UINT32_MAX;

  static std::size_t hash(const State& state) {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&state), sizeof(State)});
  }

  std::uint32_t& find(const State& state) {
    std::size_t at = hash(state) & (table_.size() - 1);
    while (table_[at] != k_empty && std::memcmp(&states_[table_[at]], &state, sizeof(State)) != 0) {
      at = (at + 1) & (table_.size() - 1);
    }
    return table_[at];
  }

  void grow() {
    table_.assign(2 * table_.size(), k_empty);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      find(states_[i]) = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<State> states_;
  std::vector<std::uint32_t> table_;
};

/// Visits every state that a machine can reach, breadth first. A machine has
///   State initial();
///   std::vector<Move> moves(State);                  the moves possible there
///   std::optional<std::string> apply(State&, Move);  makes the move, or says which promise it
///   breaks std::optional<std::string> check_end(State);     the same for a state that has no move
///   std::string describe(State, Move);
/// Every move must bring the machine nearer to its end, so that it has no infinite run: then it
/// always ends as promised exactly if each state without a move passes check_end.
template <typename Machine>
Outcome explore(const Machine& machine) {
  using State = typename Machine::State;
  using Move = typename Machine::Move;
  StateSet<State> states;
  std::vector<std::pair<std::uint32_t, Move>> reached_by;
  const auto trace = [&](std::size_t index) {
    std::string lines;
    while (index != 0) {
      const auto& [parent, move] = reached_by[index];
      lines = machine.describe(states[parent], move) + "\n" + lines;
      index = parent;
    }
    return lines;
  };
  states.insert(machine.initial());
  reached_by.emplace_back(0, Move{});
  for (std::size_t at = 0; at < states.size(); ++at) {
    const std::vector<Move> moves = machine.moves(states[at]);
    if (moves.empty()) {
      if (const auto broken = machine.check_end(states[at])) {
        return {*broken, trace(at), states.size()};
      }
    }
    for (const Move move : moves) {
      State next = states[at];
      if (const auto broken = machine.apply(next, move)) {
        return {*broken, trace(at) + machine.describe(states[at], move) + "\n", states.size()};
      }
      if (states.insert(next)) {
        reached_by.emplace_back(static_cast<std::uint32_t>(at), move);
      }
    }
  }
  return {"", "", states.size()};
}

}  // namespace headrace::model
