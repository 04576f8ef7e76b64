#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

#if defined(__CUDACC__)
#define HEADRACE_HOST_DEVICE __host__ __device__
#else
#define HEADRACE_HOST_DEVICE
#endif

// How a device's kernels cut rows of elements. A thread takes a group of consecutive elements at a
// time. The first group may begin a few elements before the row, its lead, so that the groups lie
// at aligned addresses wherever the row begins; only the part of a group that lies in the row is
// touched.

namespace headrace {

/// A row's place among its groups: elements [lead, end), counted from the first group's start.
struct GroupedRow {
  std::size_t lead = 0;
  std::size_t end = 0;
};

/// Elements [begin, end) of a group.
struct Part {
  unsigned begin = 0;
  unsigned end = 0;
};

template <unsigned group>
HEADRACE_HOST_DEVICE constexpr std::size_t groups_of(GroupedRow row) {
  return row.lead == row.end ? 0 : (row.end + group - 1) / group;
}

/// What of group `index` lies in the row; begin == end for a group beyond it.
template <unsigned group>
HEADRACE_HOST_DEVICE constexpr Part part_of(GroupedRow row, std::size_t index) {
  const std::size_t first = index * group;
  const std::size_t begin = row.lead > first ? row.lead - first : 0;
  const std::size_t end = row.end > first ? row.end - first : 0;
  const unsigned stop = end < group ? static_cast<unsigned>(end) : group;
  return {begin < stop ? static_cast<unsigned>(begin) : stop, stop};
}

/// Whether `groups` groups from `first` on lie wholly in the row.
template <unsigned group>
HEADRACE_HOST_DEVICE constexpr bool all_whole(GroupedRow row, std::size_t first,
                                              std::size_t groups) {
  return first * group >= row.lead && (first + groups) * group <= row.end;
}

/// The widest load or store of a thread, in bytes.
constexpr unsigned k_vector_bytes = 16;

/// What a kernel reads or writes: rows of elements of `item` bytes, `pitch` bytes from start to
/// start (0 for a single row), each aligned to its elements.
struct Operand {
  const void* address = nullptr;
  std::size_t item = 0;
  std::size_t pitch = 0;
};

/// The widest access, a power of two in bytes, that every group of the operand allows.
constexpr unsigned access_width(std::uintptr_t address, const Operand& operand, std::size_t lead,
                                unsigned group) {
  const std::uintptr_t misfit =
      (address - lead * operand.item) | operand.pitch | (group * operand.item) | k_vector_bytes;
  return static_cast<unsigned>(misfit & -misfit);
}

inline unsigned access_width(const Operand& operand, std::size_t lead, unsigned group) {
  return access_width(reinterpret_cast<std::uintptr_t>(operand.address), operand, lead, group);
}

/// The lead with which a group takes the fewest loads and stores over all operands.
inline std::size_t best_lead(std::span<const Operand> operands, unsigned group) {
  std::size_t best = 0;
  std::size_t fewest = SIZE_MAX;
  for (std::size_t lead = 0; lead < group; ++lead) {
    std::size_t accesses = 0;
    for (const Operand& operand : operands) {
      accesses += group * operand.item / access_width(operand, lead, group);
    }
    if (accesses < fewest) {
      fewest = accesses;
      best = lead;
    }
  }
  return best;
}

/// An operand as a kernel takes it. Group g is at base + g * (bytes of a group); `base` itself may
/// lie before the operand.
struct Access {
  std::uintptr_t base = 0;
  unsigned width = 0;  ///< bytes of a load or store
  bool full = false;   ///< as wide as a group and a vector allow
};

inline Access access(const Operand& operand, std::size_t lead, unsigned group) {
  const unsigned width = access_width(operand, lead, group);
  return {reinterpret_cast<std::uintptr_t>(operand.address) - lead * operand.item, width,
          width == std::min<std::size_t>(k_vector_bytes, group * operand.item)};
}

}  // namespace headrace
