#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace::model {

constexpr int k_max_ranks = 3;
/// A shard is copied and read in two halves, so that a reader can meet half of each version; an
/// accumulator has one or two chunks with a lock each.
constexpr int k_halves = 2;
constexpr int k_max_chunks = 2;
constexpr int k_record_slots = 2;

/// What ranks do in one bracket: each microbatch gathers from every owner and, unless the bracket
/// is an evaluation, pushes to every owner. A rank with none only publishes, finishes and settles.
struct Bracket {
  bool evaluation = false;
  std::array<int, k_max_ranks> microbatches{};
};

enum class Fault : std::uint8_t {
  none,
  death,      // no further step, not even out of a lock
  exception,  // the rank leaves the script and says so; a chunk that it has begun is finished
};

struct Script {
  int ranks = 2;
  std::vector<Bracket> brackets;
  /// Ranks from this one on hold an empty shard: nothing is read from or pushed to them, but they
  /// publish, are told what was sent, and settle.
  int owners = k_max_ranks;
  int chunks = 1;
  /// Pushes run beside the caller, as with a worker thread or a copy engine, instead of inline.
  bool push_worker = false;
  /// What may happen to any one rank between any two of its steps.
  Fault fault = Fault::none;
};

/// The protocol, a decision a line. The defaults are the protocol; every other value is a mistake,
/// or a liberty, whose effect the tests show.
struct Rules {
  bool publish_waits_for_records = true;
  bool publish_zeroes = true;
  bool zero_before_signal = true;
  bool copy_before_signal = true;
  bool gather_waits_for_epoch = true;
  bool push_waits_for_epoch = true;
  bool push_locks = true;
  bool count_after_add = true;
  int record_slots = k_record_slots;
  bool record_epoch_last = true;
  bool evaluation_settles = true;
  bool settle_waits_for_records = true;
  bool settle_waits_for_added = true;
  bool waits_check_liveness = true;
  /// Otherwise a wait looks only at the rank that it waits for.
  bool waits_check_everyone = true;
  bool lock_checks_holder = true;
  /// A rank that ends with an error first finishes the chunk that its push worker is adding.
  bool error_finishes_chunk = true;
  /// Otherwise an error names the rank that was waited for.
  bool error_names_culprit = true;
};

/// One indivisible access to shared memory, or a wait for one to become possible.
enum class Op : std::uint8_t {
  wait_record,     // until `peer`'s record of `epoch` is in its slot here
  read_record,     // its payload, the pushes sent, onto the running total
  forget_records,  // those of `epoch` are not read again
  zero_sum,        // of `part`
  zero_added,
  copy_shard,   // `part`, as version `epoch`
  signal,       // `epoch` to `peer`
  wait_signal,  // until `peer` has signalled `epoch`
  read_shard,   // `part` of `peer`'s, which must be version `epoch`
  wait_posted,  // worker: until the caller has posted `count` pushes
  post,         // caller: one more push for the worker
  lock,         // `part` of `peer`'s accumulator
  load_sum,
  store_sum,
  unlock,
  count_added,
  write_sent,   // the payload of the record of `epoch` at `peer`: `count` pushes sent
  write_epoch,  // of the record, which completes it
  wait_added,   // until as many pushes were added as the records say were sent
  read_sum,     // of `part`, which must hold every push of `epoch` once
  end,
};

constexpr std::array k_op_names = {"wait_record", "read_record", "forget_records", "zero_sum",
                                   "zero_added",  "copy_shard",  "signal",         "wait_signal",
                                   "read_shard",  "wait_posted", "post",           "lock",
                                   "load_sum",    "store_sum",   "unlock",         "count_added",
                                   "write_sent",  "write_epoch", "wait_added",     "read_sum",
                                   "end"};
static_assert(k_op_names.size() == static_cast<std::size_t>(Op::end) + 1);

struct Instruction {
  Op op = Op::end;
  std::uint8_t peer = 0;
  std::uint8_t epoch = 0;
  std::uint8_t part = 0;
  std::uint8_t count = 0;
};

using Code = std::vector<Instruction>;

/// Compiles one rank's part of a script to straight-line code: the caller's, and the push worker's.
class Compiler {
 public:
  Compiler(const Script& script, const Rules& rules, int rank)
      : script_(script), rules_(rules), rank_(rank) {}

  /// First the caller's code, then the worker's.
  std::array<Code, 2> compile() {
    for (std::size_t i = 0; i < script_.brackets.size(); ++i) {
      epoch_ = static_cast<std::uint8_t>(i + 1);
      const Bracket& bracket = script_.brackets[i];
      const int microbatches = bracket.microbatches[static_cast<std::size_t>(rank_)];
      publish();
      for (int m = 0; m < microbatches; ++m) {
        for_each_owner([&](int owner) { gather(owner); });
        if (!bracket.evaluation) {
          for_each_owner([&](int owner) { push(owner); });
        }
      }
      finish(bracket.evaluation ? 0 : microbatches);
      settle(bracket.evaluation);
    }
    emit(caller_, Op::end);
    emit(worker_, Op::end);
    return {caller_, worker_};
  }

 private:
  /// Starts at the rank itself and rotates, so that ranks rarely meet.
  template <typename Body>
  void for_each_rank(Body body) {
    for (int i = 0; i < script_.ranks; ++i) {
      body((rank_ + i) % script_.ranks);
    }
  }

  template <typename Body>
  void for_each_owner(Body body) {
    for_each_rank([&](int rank) {
      if (rank < script_.owners) {
        body(rank);
      }
    });
  }

  void emit(Code& code, Op op, int peer = 0, int part = 0, int count = 0) const {
    code.push_back({op, static_cast<std::uint8_t>(peer), epoch_, static_cast<std::uint8_t>(part),
                    static_cast<std::uint8_t>(count)});
  }

  void publish() {
    if (rules_.publish_waits_for_records && epoch_ > 1) {
      --epoch_;
      for_each_rank([&](int source) { emit(caller_, Op::wait_record, source); });
      emit(caller_, Op::forget_records);
      ++epoch_;
    }
    if (rules_.zero_before_signal) {
      zero();
    }
    if (rules_.copy_before_signal) {
      copy_shard();
    }
    for_each_rank([&](int peer) { emit(caller_, Op::signal, peer); });
    if (!rules_.copy_before_signal) {
      copy_shard();
    }
    if (!rules_.zero_before_signal) {
      zero();
    }
  }

  void zero() {
    if (rules_.publish_zeroes) {
      for (int chunk = 0; chunk < script_.chunks; ++chunk) {
        emit(caller_, Op::zero_sum, rank_, chunk);
      }
    }
    emit(caller_, Op::zero_added);
  }

  void copy_shard() {
    for (int half = 0; half < k_halves; ++half) {
      emit(caller_, Op::copy_shard, rank_, half);
    }
  }

  void gather(int owner) {
    if (rules_.gather_waits_for_epoch) {
      emit(caller_, Op::wait_signal, owner);
    }
    for (int half = 0; half < k_halves; ++half) {
      emit(caller_, Op::read_shard, owner, half);
    }
  }

  void push(int owner) {
    Code& code = script_.push_worker ? worker_ : caller_;
    if (script_.push_worker) {
      emit(caller_, Op::post);
      emit(worker_, Op::wait_posted, 0, 0, ++posted_);
    }
    if (rules_.push_waits_for_epoch) {
      emit(code, Op::wait_signal, owner);
    }
    if (!rules_.count_after_add) {
      emit(code, Op::count_added, owner);
    }
    for (int chunk = 0; chunk < script_.chunks; ++chunk) {
      if (rules_.push_locks) {
        emit(code, Op::lock, owner, chunk);
      }
      emit(code, Op::load_sum, owner, chunk);
      emit(code, Op::store_sum, owner, chunk);
      if (rules_.push_locks) {
        emit(code, Op::unlock, owner, chunk);
      }
    }
    if (rules_.count_after_add) {
      emit(code, Op::count_added, owner);
    }
  }

  void finish(int pushes) {
    for_each_rank([&](int owner) {
      if (!rules_.record_epoch_last) {
        emit(caller_, Op::write_epoch, owner);
      }
      emit(caller_, Op::write_sent, owner, 0, owner < script_.owners ? pushes : 0);
      if (rules_.record_epoch_last) {
        emit(caller_, Op::write_epoch, owner);
      }
    });
  }

  void settle(bool evaluation) {
    if (!evaluation || rules_.evaluation_settles) {
      for_each_rank([&](int source) {
        if (rules_.settle_waits_for_records) {
          emit(caller_, Op::wait_record, source);
        }
        emit(caller_, Op::read_record, source);
      });
      if (rules_.settle_waits_for_added) {
        emit(caller_, Op::wait_added);
      }
      for (int chunk = 0; chunk < script_.chunks; ++chunk) {
        emit(caller_, Op::read_sum, rank_, chunk);
      }
    }
    if (!rules_.publish_waits_for_records) {
      emit(caller_, Op::forget_records);
    }
  }

  const Script& script_;
  const Rules& rules_;
  int rank_;
  std::uint8_t epoch_ = 0;
  int posted_ = 0;
  Code caller_;
  Code worker_;
};

}  // namespace headrace::model
