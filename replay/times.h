#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace::replay {

enum class CallKind : std::uint8_t { enter, gather, reduce, leave };
inline constexpr std::size_t k_call_kinds = 4;

/// Calls of one kind in one step.
struct CallTotal {
  std::int64_t calls = 0;
  std::int64_t work_ns = 0;    ///< without waiting for peers
  std::int64_t waited_ns = 0;  ///< for peers
};

/// What one step took one rank. Nanoseconds.
struct StepTimes {
  std::int64_t begin_ns = 0;  ///< on the clock that all ranks of a host share
  std::int64_t end_ns = 0;
  std::int64_t compute_ns = 0;  ///< emulated
  std::int64_t waiting_ns = 0;  ///< for peers, while compute stood still
  std::array<CallTotal, k_call_kinds> calls = {};
  std::uint64_t bytes = 0;  ///< of unsharded groups gathered and reduced

  std::int64_t step_ns() const { return end_ns - begin_ns; }
  /// Communication while compute stood still: all that is neither compute nor waiting, waking from
  /// sleeps included.
  std::int64_t exposed_ns() const { return step_ns() - compute_ns - waiting_ns; }
  /// Communication without waiting for peers, hidden under compute or not.
  std::int64_t work_ns() const;
};

/// One arm: [step][rank].
using ArmTimes = std::vector<std::vector<StepTimes>>;

/// Nanoseconds from the first rank's begin to the last one's end.
std::int64_t step_ns(const std::vector<StepTimes>& ranks);

/// All arms of one rank as text, for a process to hand to another; and back, added to those of the
/// ranks before it. `times` has the arms and steps that the text has.
std::string to_text(const std::vector<ArmTimes>& times);
void add_text(std::vector<ArmTimes>& times, const std::string& text);

}  // namespace headrace::replay
