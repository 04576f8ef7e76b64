#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/schedule_check.h"

namespace headrace {

/// Ways of breaking a schedule by one operation of one rank.
enum class Fault {
  dropped_wait,       ///< a wait that asks for nothing
  dropped_credit,     ///< a credit that is never given
  early_stage_reuse,  ///< a wait for credits of earlier calls that asks for nothing
  early_slot_reuse,   ///< a milestone that gives memory back before its readers or writers are done
  stale_block,        ///< data, or zeros, that are not written
  double_landing,     ///< a block that lands twice
  missing_contributor,  ///< an addend left out, or a block that does not land
  reordered_signal,     ///< a signal or credit before what it stands for
  wrong_generation,     ///< a signal raised or awaited one too high or too low
  misplaced_block,      ///< data written one row further on
  dropped_order,        ///< operations of two lanes that do not wait for each other
};

const char* to_string(Fault fault);

/// The collective with this fault at this operation; none where the fault does not apply there.
std::optional<Collective> broken_at(const Collective& collective, Fault fault, int rank,
                                    std::size_t position);

/// A collective broken in one place, and what the checker should say.
struct Mutant {
  Fault fault;
  int rank;
  std::size_t position;
  Collective collective;

  std::string name() const;
};

/// Visits every mutant of the fault; `exempt` leaves out operations that guard no memory.
void for_each_mutant(const Collective& collective, Fault fault,
                     const std::function<bool(const Op&)>& exempt,
                     const std::function<void(const Mutant&)>& visit);

}  // namespace headrace
