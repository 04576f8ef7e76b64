#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/protocol.h"

namespace headrace::model {

/// All ranks of a script with their shared memory, for explore(). Memory is sequentially
/// consistent: what the model proves is the order of the steps, given that each signal, record
/// epoch and count is a release that its reader acquires.
class Machine {
 public:
  enum class Status : std::uint8_t { running, done, failed, raised, dead };

  struct Record {
    std::uint8_t epoch;
    std::uint8_t sent;
  };

  /// What one rank shows the others, and its own progress.
  struct Rank {
    std::array<std::uint8_t, k_halves> shard;
    std::array<std::uint8_t, k_max_chunks> sum;
    std::array<std::uint8_t, k_max_chunks> holder;  // 0 is free, r + 1 is rank r
    std::array<std::uint8_t, k_max_ranks> signalled;
    std::array<std::array<Record, k_record_slots>, k_max_ranks> records;
    std::uint8_t added;

    Status status;
    std::uint8_t blamed;
    std::uint8_t forgotten;  // records up to this epoch are not read again
    std::uint8_t sent;       // total of the records read in this settle
    std::uint8_t posted;
    std::array<std::uint8_t, 2> at;      // next instruction of caller and worker
    std::array<std::uint8_t, 2> loaded;  // the sum that each has read and will write back
  };

  struct State {
    std::array<Rank, k_max_ranks> ranks;
  };

  enum class Kind : std::uint8_t { step, fail, fault };
  struct Move {
    std::uint8_t rank = 0;
    std::uint8_t thread = 0;
    Kind kind = Kind::step;
  };

  /// Throws where a rank's code is longer than a State can count.
  Machine(const Script& script, const Rules& rules) : script_(script), rules_(rules) {
    for (int rank = 0; rank < script.ranks; ++rank) {
      code_.push_back(Compiler(script, rules, rank).compile());
      if (std::max(code_.back()[0].size(), code_.back()[1].size()) > UINT8_MAX) {
        throw std::length_error("a script of more than 255 steps a rank");
      }
    }
  }

  State initial() const { return State{}; }

  std::vector<Move> moves(const State& state) const {
    std::vector<Move> moves;
    const std::optional<int> culprit = find_culprit(state);
    for (std::uint8_t rank = 0; rank < script_.ranks; ++rank) {
      for (std::uint8_t thread = 0; thread < 2; ++thread) {
        const Instruction& next = instruction(state, rank, thread);
        if (runs(state.ranks[rank].status, next.op) && possible(state, rank, next)) {
          moves.push_back({rank, thread, Kind::step});
        }
        if (culprit && may_fail(state, rank, next, *culprit)) {
          moves.push_back({rank, thread, Kind::fail});
        }
      }
      if (script_.fault != Fault::none && !culprit && state.ranks[rank].status == Status::running) {
        moves.push_back({rank, 0, Kind::fault});
      }
    }
    return moves;
  }

  std::optional<std::string> apply(State& state, Move move) const {
    Rank& self = state.ranks[move.rank];
    if (move.kind == Kind::fault) {
      self.status = script_.fault == Fault::death ? Status::dead : Status::raised;
      return std::nullopt;
    }
    if (move.kind == Kind::fail) {
      const int culprit = *find_culprit(state);
      const int awaited = instruction(state, move.rank, move.thread).peer;
      self.status = Status::failed;
      self.blamed = static_cast<std::uint8_t>(rules_.error_names_culprit ? culprit : awaited);
      return std::nullopt;
    }
    const Instruction& now = instruction(state, move.rank, move.thread);
    ++self.at[move.thread];
    auto broken = execute(state, move.rank, move.thread, now);
    if (self.status == Status::running && instruction(state, move.rank, 0).op == Op::end &&
        instruction(state, move.rank, 1).op == Op::end) {
      self.status = Status::done;
    }
    return broken;
  }

  /// Without a fault every rank is done and every accumulator still holds what its last settle
  /// read. With one, every other rank has ended with an error that names the culprit, or was given
  /// all that it waited for.
  std::optional<std::string> check_end(const State& state) const {
    const std::optional<int> culprit = find_culprit(state);
    for (int rank = 0; rank < script_.ranks; ++rank) {
      const Status status = state.ranks[index(rank)].status;
      const std::string name = fmt::format("rank {}", rank);
      if (status == Status::running) {
        return name + " waits for ever";
      }
      if (status == Status::failed && state.ranks[index(rank)].blamed != culprit) {
        return name + " names the wrong rank";
      }
      if (status == Status::done) {
        if (const auto broken = check_done(state, rank, culprit)) {
          return name + *broken;
        }
      }
    }
    return std::nullopt;
  }

  std::string describe(const State& state, Move move) const {
    const std::string who = fmt::format("rank {}{}", move.rank, move.thread == 0 ? "" : " worker");
    if (move.kind == Kind::fault) {
      return who + (script_.fault == Fault::death ? " dies" : " raises");
    }
    const Instruction& now = instruction(state, move.rank, move.thread);
    return fmt::format("{}{} {} peer {} epoch {} part {}", who,
                       move.kind == Kind::fail ? " fails in" : "",
                       k_op_names[static_cast<std::size_t>(now.op)], now.peer, now.epoch, now.part);
  }

 private:
  static std::size_t index(int value) { return static_cast<std::size_t>(value); }
  std::size_t slot(std::uint8_t epoch) const { return index(epoch % rules_.record_slots); }

  const Instruction& instruction(const State& state, int rank, int thread) const {
    const Code& code = code_[index(rank)][index(thread)];
    return code[state.ranks[index(rank)].at[index(thread)]];
  }

  std::optional<int> find_culprit(const State& state) const {
    for (int rank = 0; rank < script_.ranks; ++rank) {
      const Status status = state.ranks[index(rank)].status;
      if (status == Status::dead || status == Status::raised) {
        return rank;
      }
    }
    return std::nullopt;
  }

  /// Whether a thread whose next instruction is `next` goes on in a rank of that status.
  bool runs(Status status, Op next) const {
    switch (status) {
      case Status::running:
        return next != Op::end;
      case Status::failed:
      case Status::raised:
        return rules_.error_finishes_chunk &&
               (next == Op::load_sum || next == Op::store_sum || next == Op::unlock);
      case Status::done:
      case Status::dead:
        break;
    }
    return false;
  }

  std::optional<std::string> check_done(const State& state, int rank,
                                        std::optional<int> culprit) const {
    const Rank& self = state.ranks[index(rank)];
    const auto last = static_cast<std::uint8_t>(script_.brackets.size());
    if (culprit && self.records[index(*culprit)][slot(last)].epoch != last) {
      return " settled without the record of a rank that is gone";
    }
    for (int chunk = 0; chunk < script_.chunks; ++chunk) {
      if (self.sum[index(chunk)] != expected_sum(rank, last)) {
        return " was given a push after its last settle";
      }
    }
    return std::nullopt;
  }

  /// A push by rank r counts 4^r, so that a lost or doubled one shows in the sum.
  static std::uint8_t contribution(int rank) { return static_cast<std::uint8_t>(1U << (2 * rank)); }

  std::uint8_t expected_sum(int owner, std::uint8_t epoch) const {
    const Bracket& bracket = script_.brackets[epoch - 1U];
    if (bracket.evaluation || owner >= script_.owners) {
      return 0;
    }
    int sum = 0;
    for (int rank = 0; rank < script_.ranks; ++rank) {
      sum += bracket.microbatches[index(rank)] * contribution(rank);
    }
    return static_cast<std::uint8_t>(sum);
  }

  bool possible(const State& state, int rank, const Instruction& next) const {
    const Rank& self = state.ranks[index(rank)];
    const Rank& peer = state.ranks[next.peer];
    switch (next.op) {
      case Op::wait_record:
        return self.records[next.peer][slot(next.epoch)].epoch == next.epoch;
      case Op::wait_signal:
        return peer.signalled[index(rank)] == next.epoch;
      case Op::wait_posted:
        return self.posted >= next.count;
      case Op::wait_added:
        return self.added == self.sent;
      case Op::lock:
        return peer.holder[next.part] == 0;
      default:
        return true;
    }
  }

  /// A wait may notice the culprit whether or not it could also go on. A waiter for a lock looks at
  /// the holder alone; the worker's wait for its own caller is not one that ranks share.
  bool may_fail(const State& state, int rank, const Instruction& next, int culprit) const {
    if (state.ranks[index(rank)].status != Status::running) {
      return false;
    }
    switch (next.op) {
      case Op::lock:
        return rules_.lock_checks_holder && script_.fault == Fault::death &&
               state.ranks[next.peer].holder[next.part] == culprit + 1;
      case Op::wait_record:
      case Op::wait_signal:
        return rules_.waits_check_liveness && (rules_.waits_check_everyone || next.peer == culprit);
      case Op::wait_added:
        return rules_.waits_check_liveness;
      default:
        return false;
    }
  }

  std::optional<std::string> execute(State& state, int rank, int thread,
                                     const Instruction& now) const {
    Rank& self = state.ranks[index(rank)];
    Rank& peer = state.ranks[now.peer];
    std::uint8_t& loaded = self.loaded[index(thread)];
    const auto broken = [&](const char* what) {
      return fmt::format("rank {}, epoch {}: {}", rank, now.epoch, what);
    };
    switch (now.op) {
      case Op::wait_record:
      case Op::wait_signal:
      case Op::wait_posted:
      case Op::end:
        break;
      case Op::read_record:
        self.sent =
            static_cast<std::uint8_t>(self.sent + self.records[now.peer][slot(now.epoch)].sent);
        break;
      case Op::forget_records:
        self.forgotten = now.epoch;
        break;
      case Op::zero_sum:
        self.sum[now.part] = 0;
        break;
      case Op::zero_added:
        self.added = 0;
        self.sent = 0;
        break;
      case Op::copy_shard:
        self.shard[now.part] = now.epoch;
        break;
      case Op::signal:
        self.signalled[now.peer] = now.epoch;
        break;
      case Op::read_shard:
        if (peer.shard[now.part] != now.epoch) {
          return broken("a gather read another version of a shard");
        }
        break;
      case Op::post:
        ++self.posted;
        break;
      case Op::lock:
        peer.holder[now.part] = static_cast<std::uint8_t>(rank + 1);
        break;
      case Op::load_sum:
        loaded = peer.sum[now.part];
        break;
      case Op::store_sum:
        peer.sum[now.part] = static_cast<std::uint8_t>(loaded + contribution(rank));
        loaded = 0;
        break;
      case Op::unlock:
        peer.holder[now.part] = 0;
        break;
      case Op::count_added:
        ++peer.added;
        break;
      case Op::write_sent:
      case Op::write_epoch: {
        Record& record = peer.records[index(rank)][slot(now.epoch)];
        if (record.epoch != now.epoch && record.epoch > peer.forgotten) {
          return broken("a record was overwritten before its owner had read it");
        }
        (now.op == Op::write_sent ? record.sent : record.epoch) =
            now.op == Op::write_sent ? now.count : now.epoch;
        break;
      }
      case Op::wait_added:
        break;
      case Op::read_sum:
        if (self.sum[now.part] != expected_sum(rank, now.epoch)) {
          return broken("settle read a sum that lacks a push or holds one twice");
        }
        break;
    }
    return std::nullopt;
  }

  Script script_;
  Rules rules_;
  std::vector<std::array<Code, 2>> code_;
};

}  // namespace headrace::model
